#include "textflag.h"

// func takeAVX2(dst *float32, p *byte, n int) bool
TEXT ·takeAVX2(SB), NOSPLIT, $0-25
	MOVQ dst+0(FP), DI
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL $0x7f800000, AX // an exponent of ones
	MOVQ AX, X0
	VPBROADCASTD X0, Y0
	VPXOR Y1, Y1, Y1 // all ones where an element was not finite

loop:
	VMOVDQU (SI), Y2
	VMOVDQU 32(SI), Y3
	VPAND Y0, Y2, Y4
	VPAND Y0, Y3, Y5
	VPCMPEQD Y0, Y4, Y4
	VPCMPEQD Y0, Y5, Y5
	VPOR Y4, Y1, Y1
	VPOR Y5, Y1, Y1
	VMOVDQU Y2, (DI)
	VMOVDQU Y3, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ loop
	VPTEST Y1, Y1
	SETEQ ret+24(FP)
	VZEROUPPER
	RET

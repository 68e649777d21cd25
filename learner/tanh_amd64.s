#include "textflag.h"

// p = z p + term, in both halves.
#define TERM(term)      \
	VMULPD Y6, Y4, Y6;   \
	VMULPD Y7, Y5, Y7;   \
	VADDPD term, Y6, Y6; \
	VADDPD term, Y7, Y7

// func tanhSmall(v *float32, n int, terms *[6]float64) (at int)
TEXT ·tanhSmall(SB), NOSPLIT, $0-32
	MOVQ         v+0(FP), DI
	MOVQ         n+8(FP), CX
	MOVQ         terms+16(FP), SI
	VBROADCASTSD (SI), Y8
	VBROADCASTSD 8(SI), Y9
	VBROADCASTSD 16(SI), Y10
	VBROADCASTSD 24(SI), Y11
	VBROADCASTSD 32(SI), Y12
	VBROADCASTSD 40(SI), Y13
	MOVL         $0x7FFFFFFF, AX // all but the sign
	VMOVD        AX, X14
	VBROADCASTSS X14, Y14
	MOVL         $0x3E000000, AX // 1/8
	VMOVD        AX, X15
	VBROADCASTSS X15, Y15
	XORQ         DX, DX

loop:
	VMOVUPS      (DI)(DX*4), Y0
	VANDPS       Y14, Y0, Y1
	VCMPPS       $0x11, Y15, Y1, Y1 // |x| < 1/8; of a NaN it is false
	VCVTPS2PD    X0, Y2
	VCVTPS2PD    16(DI)(DX*4), Y3
	VMULPD       Y2, Y2, Y4
	VMULPD       Y3, Y3, Y5
	VMOVAPD      Y8, Y6
	VMOVAPD      Y8, Y7
	TERM(Y9)
	TERM(Y10)
	TERM(Y11)
	TERM(Y12)
	TERM(Y13)
	VMULPD       Y6, Y4, Y6
	VMULPD       Y7, Y5, Y7
	VMULPD       Y6, Y2, Y6
	VMULPD       Y7, Y3, Y7
	VADDPD       Y6, Y2, Y6
	VADDPD       Y7, Y3, Y7
	VCVTPD2PSY   Y6, X6
	VCVTPD2PSY   Y7, X7
	VINSERTF128  $1, X7, Y6, Y6
	VANDNPS      Y0, Y14, Y2 // the sign of x: of −0 the series makes 0
	VORPS        Y2, Y6, Y6
	VBLENDVPS    Y1, Y6, Y0, Y0 // the small ones
	VMOVUPS      Y0, (DI)(DX*4)
	VMOVMSKPS    Y1, AX
	CMPL         AX, $0xFF
	JNE          done
	ADDQ         $8, DX
	CMPQ         DX, CX
	JLT          loop

done:
	VZEROUPPER
	MOVQ DX, at+24(FP)
	RET

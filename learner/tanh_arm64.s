#include "textflag.h"

// The assembler has no names for these, of two float64 or four float32 each. FACGT compares |n| > |m|. FCVTL and FCVTL2
// widen the lower and the upper half of n; FCVTN and FCVTN2 narrow n into the lower and the upper half of d.
#define FMUL2(m, n, d) WORD $(0x6E60DC00 | (m)<<16 | (n)<<5 | (d))
#define FADD2(m, n, d) WORD $(0x4E60D400 | (m)<<16 | (n)<<5 | (d))
#define FACGT4(m, n, d) WORD $(0x6EA0EC00 | (m)<<16 | (n)<<5 | (d))
#define FCVTL(n, d) WORD $(0x0E617800 | (n)<<5 | (d))
#define FCVTL2(n, d) WORD $(0x4E617800 | (n)<<5 | (d))
#define FCVTN(n, d) WORD $(0x0E616800 | (n)<<5 | (d))
#define FCVTN2(n, d) WORD $(0x4E616800 | (n)<<5 | (d))

// p = p x, in all four parts: p is in V10 to V13.
#define TIMES(x0, x1, x2, x3) \
	FMUL2(x0, 10, 10); \
	FMUL2(x1, 11, 11); \
	FMUL2(x2, 12, 12); \
	FMUL2(x3, 13, 13)

#define PLUS(x0, x1, x2, x3) \
	FADD2(x0, 10, 10); \
	FADD2(x1, 11, 11); \
	FADD2(x2, 12, 12); \
	FADD2(x3, 13, 13)

// p = z p + term: z is in V6 to V9.
#define TERM(term)    \
	TIMES(6, 7, 8, 9); \
	PLUS(term, term, term, term)

// func tanhSmall(v *float32, n int, terms *[6]float64) (at int)
TEXT ·tanhSmall(SB), NOSPLIT, $0-32
	MOVD    v+0(FP), R0
	MOVD    n+8(FP), R1
	MOVD    terms+16(FP), R2
	VLD1R.P 8(R2), [V20.D2]
	VLD1R.P 8(R2), [V21.D2]
	VLD1R.P 8(R2), [V22.D2]
	VLD1R.P 8(R2), [V23.D2]
	VLD1R.P 8(R2), [V24.D2]
	VLD1R   (R2), [V25.D2]
	MOVW    $0x3E000000, R3 // 1/8
	VDUP    R3, V26.S4
	MOVD    $0x80000000, R3 // the sign
	VDUP    R3, V27.S4
	MOVD    $0, R4

loop:
	VLD1 (R0), [V0.S4, V1.S4]
	FACGT4(0, 26, 28) // of a NaN it is false
	FACGT4(1, 26, 29)
	FCVTL(0, 2)
	FCVTL2(0, 3)
	FCVTL(1, 4)
	FCVTL2(1, 5)
	FMUL2(2, 2, 6)
	FMUL2(3, 3, 7)
	FMUL2(4, 4, 8)
	FMUL2(5, 5, 9)
	VMOV V20.B16, V10.B16
	VMOV V20.B16, V11.B16
	VMOV V20.B16, V12.B16
	VMOV V20.B16, V13.B16
	TERM(21)
	TERM(22)
	TERM(23)
	TERM(24)
	TERM(25)
	TIMES(6, 7, 8, 9)
	TIMES(2, 3, 4, 5)
	PLUS(2, 3, 4, 5)
	FCVTN(10, 14)
	FCVTN2(11, 14)
	FCVTN(12, 15)
	FCVTN2(13, 15)
	VAND V27.B16, V0.B16, V2.B16 // the sign of x: of −0 the series makes 0
	VAND V27.B16, V1.B16, V3.B16
	VORR V2.B16, V14.B16, V14.B16
	VORR V3.B16, V15.B16, V15.B16
	VBIT V28.B16, V14.B16, V0.B16 // the small ones
	VBIT V29.B16, V15.B16, V1.B16
	VST1.P [V0.S4, V1.S4], 32(R0)
	VAND V28.B16, V29.B16, V28.B16
	VMOV V28.D[0], R5
	VMOV V28.D[1], R6
	AND  R6, R5
	CMN  $1, R5
	BNE  done
	ADD  $8, R4
	CMP  R1, R4
	BLT  loop

done:
	MOVD R4, at+24(FP)
	RET

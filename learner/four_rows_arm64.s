#include "textflag.h"

// The assembler has no names for these. FADDP adds neighbours: of d = n, m the lanes n0+n1, n2+n3, m0+m1, m2+m3.
#define FMUL4(m, n, d) WORD $(0x6E20DC00 | (m)<<16 | (n)<<5 | (d))
#define FADD4(m, n, d) WORD $(0x4E20D400 | (m)<<16 | (n)<<5 | (d))
#define FADDP4(m, n, d) WORD $(0x6E20D400 | (m)<<16 | (n)<<5 | (d))

// Lane k of each sum begins with the product of element k.
#define LANE(k) \
	FMOVS (4*k)(R2), F4;  \
	FMOVS (4*k)(R1), F5;  \
	FMOVS (4*k)(R5), F6;  \
	FMOVS (4*k)(R6), F7;  \
	FMOVS (4*k)(R7), F8;  \
	FMULS F4, F5, F5;     \
	FMULS F4, F6, F6;     \
	FMULS F4, F7, F7;     \
	FMULS F4, F8, F8;     \
	VMOV  V5.S[0], V0.S[k]; \
	VMOV  V6.S[0], V1.S[k]; \
	VMOV  V7.S[0], V2.S[k]; \
	VMOV  V8.S[0], V3.S[k]

// func dot4(dst *[4]float32, w, x *float32, n int)
TEXT ·dot4(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD w+8(FP), R1
	MOVD x+16(FP), R2
	MOVD n+24(FP), R3
	LSL  $2, R3, R4
	ADD  R4, R1, R5
	ADD  R4, R5, R6
	ADD  R4, R6, R7
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	AND  $3, R3, R8
	CBZ  R8, whole
	LANE(0)
	CMP  $1, R8
	BEQ  skip
	LANE(1)
	CMP  $2, R8
	BEQ  skip
	LANE(2)

skip:
	LSL $2, R8, R8
	ADD R8, R2
	ADD R8, R1
	ADD R8, R5
	ADD R8, R6
	ADD R8, R7

whole:
	LSR $2, R3, R3

loop:
	VLD1.P 16(R2), [V4.S4]
	VLD1.P 16(R1), [V5.S4]
	VLD1.P 16(R5), [V6.S4]
	VLD1.P 16(R6), [V7.S4]
	VLD1.P 16(R7), [V8.S4]
	FMUL4(4, 5, 5)
	FMUL4(4, 6, 6)
	FMUL4(4, 7, 7)
	FMUL4(4, 8, 8)
	FADD4(5, 0, 0)
	FADD4(6, 1, 1)
	FADD4(7, 2, 2)
	FADD4(8, 3, 3)
	SUB    $1, R3
	CBNZ   R3, loop
	FADDP4(1, 0, 0)
	FADDP4(3, 2, 2)
	FADDP4(2, 0, 0)
	VST1   [V0.S4], (R0)
	RET

// func narrow4(dst *[4]float32, w, x *float32, n int)
TEXT ·narrow4(SB), NOSPLIT, $0-32
	B ·dot4(SB)

// func axpy4(y *float32, n int, c0, c1, c2, c3 float32, x0, x1, x2, x3 *float32)
TEXT ·axpy4(SB), NOSPLIT, $0-64
	MOVD  y+0(FP), R0
	MOVD  n+8(FP), R3
	FMOVS c0+16(FP), F0
	FMOVS c1+20(FP), F1
	FMOVS c2+24(FP), F2
	FMOVS c3+28(FP), F3
	VDUP  V0.S[0], V16.S4
	VDUP  V1.S[0], V17.S4
	VDUP  V2.S[0], V18.S4
	VDUP  V3.S[0], V19.S4
	MOVD  x0+32(FP), R1
	MOVD  x1+40(FP), R5
	MOVD  x2+48(FP), R6
	MOVD  x3+56(FP), R7
	AND   $3, R3, R8
	LSR   $2, R3, R3

axpyloop:
	VLD1   (R0), [V4.S4]
	VLD1.P 16(R1), [V5.S4]
	VLD1.P 16(R5), [V6.S4]
	VLD1.P 16(R6), [V7.S4]
	VLD1.P 16(R7), [V20.S4]
	FMUL4(16, 5, 5)
	FMUL4(17, 6, 6)
	FMUL4(18, 7, 7)
	FMUL4(19, 20, 20)
	FADD4(5, 4, 4)
	FADD4(6, 4, 4)
	FADD4(7, 4, 4)
	FADD4(20, 4, 4)
	VST1.P [V4.S4], 16(R0)
	SUB    $1, R3
	CBNZ   R3, axpyloop
	CBZ    R8, axpydone

axpy1:
	FMOVS   (R0), F4
	FMOVS.P 4(R1), F5
	FMOVS.P 4(R5), F6
	FMOVS.P 4(R6), F7
	FMOVS.P 4(R7), F20
	FMULS   F0, F5, F5
	FMULS   F1, F6, F6
	FMULS   F2, F7, F7
	FMULS   F3, F20, F20
	FADDS   F5, F4, F4
	FADDS   F6, F4, F4
	FADDS   F7, F4, F4
	FADDS   F20, F4, F4
	FMOVS.P F4, 4(R0)
	SUB     $1, R8
	CBNZ    R8, axpy1

axpydone:
	RET

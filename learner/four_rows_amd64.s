#include "textflag.h"

// One row: its two sums of four lanes take 16 elements of x, which are in X8 to X11, in turn.
#define ROW16(row, sum, other) \
	MOVUPS (row)(AX*4), X12;   \
	MULPS  X8, X12;            \
	ADDPS  X12, sum;           \
	MOVUPS 16(row)(AX*4), X13; \
	MULPS  X9, X13;            \
	ADDPS  X13, other;         \
	MOVUPS 32(row)(AX*4), X14; \
	MULPS  X10, X14;           \
	ADDPS  X14, sum;           \
	MOVUPS 48(row)(AX*4), X15; \
	MULPS  X11, X15;           \
	ADDPS  X15, other

// Four elements, which are in X8.
#define ROW4(row, sum) \
	MOVUPS (row)(AX*4), X12; \
	MULPS  X8, X12;          \
	ADDPS  X12, sum

// One element, which is in X8.
#define ROW1(row, sum) \
	MOVSS (row)(AX*4), X12; \
	MULSS X8, X12;          \
	ADDSS X12, sum

// Four rows of CX elements from R8 on, and their sums, which are 0.
#define BEGIN \
	LEAQ  (R8)(CX*4), R9;   \
	LEAQ  (R9)(CX*4), R10;  \
	LEAQ  (R10)(CX*4), R11; \
	XORPS X0, X0;           \
	XORPS X1, X1;           \
	XORPS X2, X2;           \
	XORPS X3, X3

#define EACH(row) \
	row(R8, X0);  \
	row(R9, X1);  \
	row(R10, X2); \
	row(R11, X3)

// func dot4(dst *[4]float32, w, x *float32, n int)
TEXT ·dot4(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), R8
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX
	BEGIN
	XORPS X4, X4
	XORPS X5, X5
	XORPS X6, X6
	XORPS X7, X7
	XORQ AX, AX
	MOVQ SI, DX
	ANDQ $15, DX
	JZ   aligned

align: // up to three elements, until x is at a multiple of 16 bytes
	MOVSS (SI)(AX*4), X8
	EACH(ROW1)
	INCQ  AX
	DECQ  CX
	ADDQ  $4, DX
	CMPQ  DX, $16
	JNE   align

aligned:
	MOVQ CX, BX
	ANDQ $15, BX
	SHRQ $4, CX

loop16:
	MOVAPS (SI)(AX*4), X8
	MOVAPS 16(SI)(AX*4), X9
	MOVAPS 32(SI)(AX*4), X10
	MOVAPS 48(SI)(AX*4), X11
	ROW16(R8, X0, X4)
	ROW16(R9, X1, X5)
	ROW16(R10, X2, X6)
	ROW16(R11, X3, X7)
	ADDQ   $16, AX
	DECQ   CX
	JNZ    loop16
	ADDPS  X4, X0
	ADDPS  X5, X1
	ADDPS  X6, X2
	ADDPS  X7, X3
	MOVQ   BX, CX
	SHRQ   $2, CX
	JZ     rest

loop4:
	MOVAPS (SI)(AX*4), X8
	EACH(ROW4)
	ADDQ   $4, AX
	DECQ   CX
	JNZ    loop4

rest:
	ANDQ $3, BX
	JZ   done

loop1:
	MOVSS (SI)(AX*4), X8
	EACH(ROW1)
	INCQ  AX
	DECQ  BX
	JNZ   loop1

done:
	HADDPS X0, X0
	HADDPS X1, X1
	HADDPS X2, X2
	HADDPS X3, X3
	HADDPS X0, X0
	HADDPS X1, X1
	HADDPS X2, X2
	HADDPS X3, X3
	MOVSS  X0, (DI)
	MOVSS  X1, 4(DI)
	MOVSS  X2, 8(DI)
	MOVSS  X3, 12(DI)
	RET

// leftover<>[16k:] keeps the first k lanes, k = 1, 2, 3.
DATA leftover<>+16(SB)/4, $0xffffffff
DATA leftover<>+20(SB)/4, $0
DATA leftover<>+24(SB)/8, $0
DATA leftover<>+32(SB)/8, $0xffffffffffffffff
DATA leftover<>+40(SB)/8, $0
DATA leftover<>+48(SB)/8, $0xffffffffffffffff
DATA leftover<>+56(SB)/4, $0xffffffff
DATA leftover<>+60(SB)/4, $0
GLOBL leftover<>(SB), RODATA|NOPTR, $64

// The first elements of one row, times those of x, which are in X8; the mask is in X9.
#define FIRST(row, sum) \
	MOVUPS (row), X12; \
	ANDPS  X9, X12;    \
	MULPS  X8, X12;    \
	ADDPS  X12, sum

// func narrow4(dst *[4]float32, w, x *float32, n int)
TEXT ·narrow4(SB), NOSPLIT, $0-32
	MOVQ  dst+0(FP), DI
	MOVQ  w+8(FP), R8
	MOVQ  x+16(FP), SI
	MOVQ  n+24(FP), CX
	BEGIN
	MOVQ  CX, AX
	SHRQ  $2, CX
	ANDQ  $3, AX
	JZ    narrowloop
	MOVQ  AX, BX
	SHLQ  $4, BX
	LEAQ  leftover<>(SB), DX
	MOVUPS (DX)(BX*1), X9
	MOVUPS (SI), X8
	ANDPS  X9, X8
	EACH(FIRST)

narrowloop:
	MOVUPS (SI)(AX*4), X8
	EACH(ROW4)
	ADDQ   $4, AX
	DECQ   CX
	JNZ    narrowloop
	HADDPS X1, X0
	HADDPS X3, X2
	HADDPS X2, X0
	MOVUPS X0, (DI)
	RET

// Four elements of one row, times its factor.
#define ADD4(row, factor) \
	MOVUPS (row)(AX*4), X5; \
	MULPS  factor, X5;      \
	ADDPS  X5, X4

#define ADD1(row, factor) \
	MOVSS (row)(AX*4), X5; \
	MULSS factor, X5;      \
	ADDSS X5, X4

// func axpy4(y *float32, n int, c0, c1, c2, c3 float32, x0, x1, x2, x3 *float32)
TEXT ·axpy4(SB), NOSPLIT, $0-64
	MOVQ   y+0(FP), DI
	MOVQ   n+8(FP), CX
	MOVSS  c0+16(FP), X0
	MOVSS  c1+20(FP), X1
	MOVSS  c2+24(FP), X2
	MOVSS  c3+28(FP), X3
	SHUFPS $0, X0, X0
	SHUFPS $0, X1, X1
	SHUFPS $0, X2, X2
	SHUFPS $0, X3, X3
	MOVQ   x0+32(FP), R8
	MOVQ   x1+40(FP), R9
	MOVQ   x2+48(FP), R10
	MOVQ   x3+56(FP), R11
	XORQ   AX, AX
	MOVQ   CX, BX
	ANDQ   $3, BX
	SHRQ   $2, CX

axpyloop:
	MOVUPS (DI)(AX*4), X4
	ADD4(R8, X0)
	ADD4(R9, X1)
	ADD4(R10, X2)
	ADD4(R11, X3)
	MOVUPS X4, (DI)(AX*4)
	ADDQ   $4, AX
	DECQ   CX
	JNZ    axpyloop
	TESTQ  BX, BX
	JZ     axpydone

axpy1:
	MOVSS (DI)(AX*4), X4
	ADD1(R8, X0)
	ADD1(R9, X1)
	ADD1(R10, X2)
	ADD1(R11, X3)
	MOVSS X4, (DI)(AX*4)
	INCQ  AX
	DECQ  BX
	JNZ   axpy1

axpydone:
	RET

// The loop of addScaled, for a compiler that may use all that this processor has: `scale D INPUTS SECONDS` adds INPUTS
// different vectors of D elements in turn, and prints the nanoseconds of processor time
// that an element takes.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

__attribute__((noinline)) static void add(double *restrict acc, double f, const float *restrict v, long n) {
	for (long i = 0; i < n; i++)
		acc[i] += f * v[i];
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	long d = atol(argv[1]), inputs = atol(argv[2]), rounds = 0;
	double seconds = atof(argv[3]), *acc = calloc(d, sizeof *acc);
	float *v = malloc(d * inputs * sizeof *v);
	for (long i = 0; i < d * inputs; i++)
		v[i] = (float)i / (d * inputs);
	for (long k = 0; k < inputs; k++)
		add(acc, 0.5, v + k * d, d);
	double begin = now(), took;
	do {
		for (long k = 0; k < inputs; k++)
			add(acc, 0.5, v + k * d, d);
		rounds++;
	} while ((took = now() - begin) < seconds);
	printf("%.4f\n", took * 1e9 / ((double)rounds * inputs * d));
	return acc[d - 1] < 0;
}

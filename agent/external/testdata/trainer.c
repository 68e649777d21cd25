/* A trainer in C, written from docs/TRAINER.md: least squares on rows that it makes itself, y = 2u - v + 1/2. Its model is
 * one tensor of three numbers. It needs POSIX and nothing else; what it does not read of a frame it passes over. */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 200, FEATURES = 3 };

static double rows[ROWS][FEATURES], targets[ROWS];

/* number returns a field of a frame, which is a flat object; otherwise where it is missing. */
static double number(const char *frame, const char *field, double otherwise)
{
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", field);
  const char *at = strstr(frame, key);
  return at ? strtod(at + strlen(key), NULL) : otherwise;
}

static int is(const char *frame, const char *name)
{
  char key[64];
  snprintf(key, sizeof key, "\"frame\":\"%s\"", name);
  return strstr(frame, key) != NULL;
}

/* parameters maps the file that hello names: behind 8 bytes and the header lie the numbers. */
static float *parameters(const char *frame)
{
  const char *from = strstr(frame, "\"tensors\":\"");
  char path[4096];
  if (!from || sscanf(from, "\"tensors\":\"%4095[^\"]", path) != 1)
    return NULL;
  int fd = open(path, O_RDWR);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0)
    return NULL;
  unsigned char *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (p == MAP_FAILED)
    return NULL;
  uint64_t header = 0;
  for (int i = 7; i >= 0; i--)
    header = header << 8 | p[i];
  if (8 + header + FEATURES * sizeof(float) != (uint64_t)st.st_size)
    return NULL; /* another model */
  return (float *)(void *)(p + 8 + header);
}

static double residual(const double *x, int i)
{
  double sum = -targets[i];
  for (int j = 0; j < FEATURES; j++)
    sum += x[j] * rows[i][j];
  return sum;
}

static double risk(const double *x)
{
  double sum = 0;
  for (int i = 0; i < ROWS; i++)
    sum += residual(x, i) * residual(x, i) / 2 / ROWS;
  return sum;
}

/* stopped reports whether a line waits: while a request is not answered that can only be stop, or the end. */
static int stopped(void)
{
  struct pollfd in = {.fd = 0, .events = POLLIN};
  return poll(&in, 1, 0) > 0;
}

static void fit(const char *frame, float *shared)
{
  static double base[FEATURES]; /* of the block, for the proximal term */
  double x[FEATURES], mu = number(frame, "step_size", 0), lambda = number(frame, "proximal", 0);
  uint64_t first = (uint64_t)number(frame, "first", 1), last = (uint64_t)number(frame, "last", 1), taken = 0;
  for (int j = 0; j < FEATURES; j++)
    x[j] = shared[j];
  if (first == 1)
    memcpy(base, x, sizeof base);
  double before = risk(x);
  for (uint64_t step = first; step <= last && !stopped(); step++, taken++) {
    double gradient[FEATURES] = {0};
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < FEATURES; j++)
        gradient[j] += residual(x, i) * rows[i][j] / ROWS;
    for (int j = 0; j < FEATURES; j++)
      x[j] -= mu * (gradient[j] + lambda * (x[j] - base[j]));
  }
  for (int j = 0; j < FEATURES; j++)
    shared[j] = (float)x[j];
  printf("{\"frame\":\"fitted\",\"id\":%.0f,\"steps\":%" PRIu64 ",\"rows\":%d,\"risk_before\":%.17g,\"risk_after\":%.17g}\n",
         number(frame, "id", 0), taken, ROWS, before, risk(x));
}

int main(void)
{
  static char frame[65537];
  float *shared = NULL;
  uint32_t state = 1;
  for (int i = 0; i < ROWS; i++) {
    for (int j = 0; j < 2; j++) {
      state = state * 1664525u + 1013904223u;
      rows[i][j] = state / 2147483648.0 - 1;
    }
    rows[i][2] = 1;
    targets[i] = 2 * rows[i][0] - rows[i][1] + 0.5;
  }
  setvbuf(stdin, NULL, _IONBF, 0); /* so that poll sees what waits */
  while (fgets(frame, sizeof frame, stdin)) {
    if (is(frame, "hello")) {
      if ((shared = parameters(frame)))
        printf("{\"frame\":\"hello\",\"version\":1,\"name\":\"least squares in C\",\"rows\":%d,\"can\":[\"mixing\",\"proximal\"]}\n",
               ROWS);
      else
        printf("{\"frame\":\"failed\",\"why\":\"the task has another model: want one tensor of three numbers\"}\n");
    } else if (is(frame, "fit") && shared) {
      fit(frame, shared);
    } else if (!is(frame, "stop")) {
      printf("{\"frame\":\"failed\",\"id\":%.0f,\"why\":\"not known here\"}\n", number(frame, "id", 0));
    }
    fflush(stdout);
  }
  return 0;
}

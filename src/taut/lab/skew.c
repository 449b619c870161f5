/* Preloaded into lab ranks: shifts CLOCK_REALTIME of one process by an offset and a drift, as a bad clock would be. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_ns, since;
static double drift_ppm;

static long long raw(clockid_t clock) {
    struct timespec t;
    syscall(SYS_clock_gettime, clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long long now(void) {
    long long shift = offset_ns;
    if (drift_ppm != 0) shift += (long long)((raw(CLOCK_MONOTONIC) - since) * drift_ppm * 1e-6);
    return raw(CLOCK_REALTIME) + shift;
}

void skew_set(long long ns, double ppm) {
    offset_ns = ns;
    drift_ppm = ppm;
    since = raw(CLOCK_MONOTONIC);
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, clock, t);
    long long v = now();
    t->tv_sec = v / 1000000000LL;
    t->tv_nsec = v % 1000000000LL;
    return 0;
}

int gettimeofday(struct timeval *t, void *zone) {
    (void)zone;
    long long v = now();
    t->tv_sec = v / 1000000000LL;
    t->tv_usec = v % 1000000000LL / 1000;
    return 0;
}

time_t time(time_t *t) {
    time_t v = now() / 1000000000LL;
    if (t) *t = v;
    return v;
}

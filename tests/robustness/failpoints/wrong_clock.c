/* Makes the wall clock of a process wrong by the seconds in a file, which may change while it runs.

   Built by clock.py. The monotonic clock is right, as after a step of NTP. Debian's
   faketime does the same, but with its version 0.9.10 each time.sleep of Python fails with EINVAL. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* A wait until a later time than this is one by the wall clock: no machine has been up for so long. */
#define LONGEST_UPTIME_S 1000000000L

/* Before glibc 2.36, dlsym finds a version that does not fit the other functions of a condition. */
#ifdef __x86_64__
#define CONDITION_VERSION "GLIBC_2.3.2"
#else
#define CONDITION_VERSION "GLIBC_2.17"
#endif

static long offset_s(void) {
    char text[24] = "";
    const char *file = getenv("SLUICEGATE_TESTS_CLOCK");
    int opened = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (opened < 0) return 0;
    if (read(opened, text, sizeof text - 1) < 0) text[0] = 0;
    close(opened);
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec exact = {0};
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}

static struct timespec right(const struct timespec *until) {
    struct timespec found = *until;
    if (found.tv_sec > LONGEST_UPTIME_S) found.tv_sec -= offset_s();
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec found = right(until);
    if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", CONDITION_VERSION);
    return next(condition, mutex, &found);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*next)(sem_t *, const struct timespec *);
    struct timespec found = right(until);
    if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
    return next(semaphore, &found);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static int (*next)(cnd_t *, mtx_t *, const struct timespec *);
    struct timespec found = right(until);
    if (!next) next = dlsym(RTLD_NEXT, "cnd_timedwait");
    return next(condition, mutex, &found);
}

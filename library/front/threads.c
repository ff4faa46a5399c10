/* The threads of the core. A Go runtime ends its process if it cannot make a thread. So the front makes those that a runtime
 * needs, and the runtime takes them. */
#define _GNU_SOURCE
#include "front.h"

#include <sched.h>
#include <semaphore.h>

/* A Go runtime has some four threads of its own, a collection adds one for each processor, and two more are a margin. */
enum { FIRST = 6, MOST = 24 };

/* A thread that waits for work. */
struct seat {
    pthread_t thread;
    sem_t given;
    void *(*run)(void *); /* NULL: the thread ends */
    void *arg;
};

static struct {
    size_t stack;                 /* the size of each thread's stack */
    unsigned want;
    _Atomic unsigned made, taken; /* seats below taken have work or an order to end, */
    _Atomic unsigned left;        /* and in so many the thread has read that */
    sem_t asked;                  /* can be waited for when the runtime wants another thread, */
    sem_t complete;               /* and this one when it can have it */
    struct seat seat[MOST];
} pool;

/* BEGUN: in the first thread. */
static enum { NONE, BEGUN, RUNNING } runtime;

static void wait_for(sem_t *event)
{
    while (sem_wait(event) != 0) /* it was interrupted */
        ;
}

static void *sit(void *own)
{
    struct seat *seat = own;
    wait_for(&seat->given);
    void *(*run)(void *) = seat->run;
    void *arg = seat->arg;
    if (run != NULL)
        pthread_detach(pthread_self());
    atomic_fetch_add(&pool.left, 1);
    return run != NULL ? run(arg) : NULL;
}

static void give(struct seat *to, void *(*run)(void *), void *arg)
{
    to->run = run;
    to->arg = arg;
    sem_post(&to->given);
}

/* The core's nvmlfab_give_fn. The runtime starts in the first thread, and has no other one before all exist. */
static int take_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    size_t stack = pool.stack;
    if (atomic_load(&pool.taken) > 0) {
        sem_post(&pool.asked);
        wait_for(&pool.complete);
        sem_post(&pool.complete); /* for the next one */
    }
    if (attributes != NULL)
        pthread_attr_getstacksize(attributes, &stack);
    if (stack != pool.stack || atomic_load(&pool.taken) >= atomic_load(&pool.made))
        return EAGAIN;
    unsigned i = atomic_fetch_add(&pool.taken, 1);
    if (i >= atomic_load(&pool.made))
        return EAGAIN;
    *thread = pool.seat[i].thread;
    give(&pool.seat[i], run, arg);
    return 0;
}

static int make_thread(void)
{
    struct seat *seat = &pool.seat[pool.made];
    sem_init(&seat->given, 0, 0);
    int error = pthread_create(&seat->thread, NULL, sit, seat);
    if (error == 0)
        atomic_fetch_add(&pool.made, 1);
    return error;
}

static void prepare(void)
{
    cpu_set_t processors;
    pthread_attr_t usual;

    while (atomic_load(&pool.left) < atomic_load(&pool.made)) /* of an earlier core */
        sched_yield();
    pool.made = pool.taken = pool.left = 0;
    if (runtime == NONE) {
        sem_init(&pool.asked, 0, 0);
        sem_init(&pool.complete, 0, 0);
    }
    pool.want = FIRST;
    CPU_ZERO(&processors);
    if (sched_getaffinity(0, sizeof processors, &processors) == 0)
        pool.want += (unsigned)CPU_COUNT(&processors);
    if (pool.want > MOST)
        pool.want = MOST;
    pthread_attr_init(&usual);
    pthread_attr_getstacksize(&usual, &pool.stack);
    pthread_attr_destroy(&usual);
}

int nvmlfab_start_core(int (*start)(nvmlfab_give_fn give))
{
    prepare();
    int error = make_thread();
    if (error == 0 && start(take_thread))
        runtime = BEGUN;
    while (error == 0 && pool.made < pool.want)
        error = make_thread();
    if (error != 0) {
        if (runtime == BEGUN) {
            wait_for(&pool.asked);
            sem_post(&pool.asked); /* it goes on asking */
        }
        nvmlfab_end_threads();
    } else if (runtime == BEGUN) {
        runtime = RUNNING;
        sem_post(&pool.complete);
    }
    return error;
}

void nvmlfab_end_threads(void)
{
    for (unsigned i; (i = atomic_fetch_add(&pool.taken, 1)) < atomic_load(&pool.made);) {
        give(&pool.seat[i], NULL, NULL);
        pthread_join(pool.seat[i].thread, NULL);
    }
}

int nvmlfab_started(void) { return runtime != NONE; }

void nvmlfab_forget_threads(void)
{
    memset(&pool, 0, sizeof pool);
    runtime = NONE;
}

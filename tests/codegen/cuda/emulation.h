// CUDA C run on the CPU, one thread at a time, with traps: each CUDA thread is a fiber that runs until its next barrier; which
// runs next is drawn at random. Elements of shared and global memory remember who touched them since the last barrier.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __align__(n) alignas(n)

struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct dim3 { int x, y, z; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;

static float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }
static float __int_as_float(int u) { float x; memcpy(&x, &u, 4); return x; }
static unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float float16_value(unsigned short bits) { _Float16 h; memcpy(&h, &bits, 2); return (float)h; }
static inline unsigned short float16_bits(float x) { _Float16 h = (_Float16)x; unsigned short b; memcpy(&b, &h, 2); return b; }

// --- the machine ------------------------------------------------------------------------------------------------------

static uint64_t random_state;
static unsigned random_below(unsigned n) {
  uint64_t z = (random_state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (unsigned)((z ^ (z >> 31)) % n);
}

static char failure[512];
#define FAIL(...) do { if (!failure[0]) snprintf(failure, sizeof failure, __VA_ARGS__); } while (0)

static int current;  // the thread that runs
static unsigned epoch = 1, block_start, launch_start;  // stamps: of now, of the first moment of the block and of the launch

struct Cell { int writer = -1, reader = -1; unsigned written = 0, read = 0, first_read = 0; };

static void touch(Cell& c, bool writes, bool across, const char* name, long i) {
  if (c.written == epoch && c.writer != current)
    FAIL("race: threads %d and %d of one block touch %s[%ld] without a barrier, and thread %d writes", c.writer, current, name, i, c.writer);
  if (across && c.written >= launch_start && c.written < block_start) FAIL("race: two blocks touch %s[%ld], and one writes", name, i);
  if (writes) {
    if (c.read == epoch && c.reader != current)
      FAIL("race: thread %d writes %s[%ld], which thread %d reads without a barrier", current, name, i, c.reader);
    if (across && c.first_read >= launch_start && c.first_read < block_start) FAIL("race: two blocks touch %s[%ld], and one writes", name, i);
    c.writer = current;
    c.written = epoch;
  } else {
    c.reader = c.read == epoch && c.reader != current ? -2 : current;
    c.read = epoch;
    if (c.first_read < launch_start) c.first_read = epoch;
  }
}

template <typename T> struct Memory {
  T* data; long count; Cell* cells; bool across; const char* name; const char* kernel;
  T* at(long i, bool writes, long n = 1) const {
    if (i < 0 || i + n > count) { FAIL("%s: index %ld of %s is outside 0 .. %ld", kernel, i, name, count - 1); i = 0; }
    for (long k = 0; k < n; ++k) touch(cells[i + k], writes, across, name, i + k);
    return data + i;
  }
};

template <typename T> struct Ref {
  const Memory<T>& memory; long i;
  operator T() const { return *memory.at(i, false); }
  T operator=(T value) const { return *memory.at(i, true) = value; }
  T operator=(const Ref& other) const { return *this = (T)other; }
};

template <typename T> struct Place {
  const Memory<T>& memory; long i;
  template <typename U> U* at(bool writes) const {
    long n = sizeof(U) / sizeof(T);
    T* p = memory.at(i, writes, n);
    if ((uintptr_t)p % sizeof(U)) FAIL("%s: %s + %ld is not aligned to %zu bytes", memory.kernel, memory.name, i, sizeof(U));
    return (U*)p;
  }
  Place operator+(long k) const { return {memory, i + k}; }
  template <typename U> explicit operator const U*() const { return at<U>(false); }
  template <typename U, typename = std::enable_if_t<!std::is_const_v<U>>> explicit operator U*() const { return at<U>(true); }
};

template <typename T> struct Global : Memory<T> {
  Ref<T> operator[](long i) const { return {*this, i}; }
  Place<T> operator+(long i) const { return {*this, i}; }
};
template <typename T> struct Global<const T> : Memory<T> {
  T operator[](long i) const { return *this->at(i, false); }
  Place<T> operator+(long i) const { return {*this, i}; }
};

// Shared memory belongs to a block; it is filled with garbage before each.
struct Erasable { virtual void erase() = 0; };
static std::vector<Erasable*> erasables;
template <typename T> struct Shared : Memory<T>, Erasable {
  std::vector<char> store; std::vector<Cell> marks;
  alignas(16) T* aligned;
  Shared(long n, const char* name, const char* kernel) : store(n * sizeof(T) + 16), marks(n) {
    aligned = (T*)(((uintptr_t)store.data() + 15) & ~(uintptr_t)15);
    (Memory<T>&)*this = {aligned, n, marks.data(), false, name, kernel};
    erasables.push_back(this);
    erase();
  }
  void erase() override { memset((void*)aligned, 0xff, this->count * sizeof(T)); }
  Ref<T> operator[](long i) const { return {*this, i}; }
  Place<T> operator+(long i) const { return {*this, i}; }
};

enum State { READY, WAITING, SHUFFLING, DONE };
struct Fiber { ucontext_t context; State state; int line, shuffles; dim3 index; };
static std::vector<Fiber> fibers;
static std::unique_ptr<char[]> stacks;
static long stack_count;
static ucontext_t scheduler;
const size_t STACK = 96 * 1024;

static void sleep_as(State state, int line) {
  Fiber& f = fibers[current];
  f.state = state;
  f.line = line;
  swapcontext(&f.context, &scheduler);
}
static void barrier(int line) { sleep_as(WAITING, line); }
#define __syncthreads() barrier(__LINE__)

static double exchanged[2][1024];
template <typename T> static T shuffle_xor(unsigned mask, T value, int distance, int line) {
  int me = current, slot = fibers[me].shuffles++ & 1, lane = me % 32;
  memcpy(&exchanged[slot][me], &value, sizeof value);
  if (!(mask >> lane & 1)) FAIL("lane %d is not in the mask %x of its shuffle", lane, mask);
  sleep_as(SHUFFLING, line);
  int other = me - lane + (lane ^ distance);
  if (other >= (int)fibers.size() || !(mask >> (lane ^ distance) & 1)) { FAIL("lane %d shuffles with lane %d, which is not there", lane, lane ^ distance); other = me; }
  T result;
  memcpy(&result, &exchanged[slot][other], sizeof result);
  return result;
}
#define __shfl_xor_sync(mask, value, distance) shuffle_xor<decltype(+(value))>(mask, value, distance, __LINE__)

// Asynchronous copies happen as late as they may: when they are waited for.
struct Copy { std::function<void()> run; };
static std::vector<std::vector<Copy>> copies;
template <typename T, typename U> static void copy_async(const Place<T>& to, const Place<U>& from) {
  if ((int)copies.size() <= current) copies.resize(current + 1);
  copies[current].push_back({[to, from] { *(int4*)to = *(const int4*)from; }});
}
static void copy_async_wait() {
  if (current < (int)copies.size()) { for (Copy& c : copies[current]) c.run(); copies[current].clear(); }
}

typedef void (*Body)(void*);
static Body body;
static void* arguments;
static void fiber_main() {
  body(arguments);
  if (current < (int)copies.size() && !copies[current].empty()) FAIL("thread %d ends with copies that it has not waited for", current);
  fibers[current].state = DONE;
  swapcontext(&fibers[current].context, &scheduler);
}

// Lets waiting threads go on where all that must arrive have arrived; false if nobody can.
static bool release() {
  bool any = false;
  int n = (int)fibers.size(), waiting = 0, done = 0, line = 0;
  for (int w = 0; w < n; w += 32) {
    int end = w + 32 < n ? w + 32 : n, here = 0, where = 0;
    for (int t = w; t < end; ++t) if (fibers[t].state == SHUFFLING) { ++here; if (where && where != fibers[t].line) FAIL("lanes of one warp shuffle at different places"); where = fibers[t].line; }
    if (here == end - w) { for (int t = w; t < end; ++t) fibers[t].state = READY; any = true; }
  }
  if (any) return true;
  for (Fiber& f : fibers) {
    if (f.state == WAITING) { ++waiting; if (line && line != f.line) FAIL("threads of one block wait at different barriers"); line = f.line; }
    done += f.state == DONE;
  }
  if (!waiting || waiting != n) {
    if (done != n) FAIL("%d of %d threads wait at a barrier or shuffle that the others do not reach", n - done, n);
    return false;
  }
  for (Fiber& f : fibers) f.state = READY;
  ++epoch;
  return true;
}

static void run_block(dim3 b) {
  blockIdx = b;
  block_start = ++epoch;
  for (Erasable* s : erasables) s->erase();
  int n = blockDim.x * blockDim.y * blockDim.z;
  std::vector<int> order(n);
  for (int t = 0; t < n; ++t) order[t] = t;
  for (int t = n - 1; t > 0; --t) std::swap(order[t], order[random_below(t + 1)]);
  auto place = [](int t) { return dim3{t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y}; };
  fibers.resize(n);
  if (stack_count < n) { stacks.reset(new char[n * STACK]); stack_count = n; }
  for (int t = 0; t < n; ++t) {
    Fiber& f = fibers[t];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks.get() + t * STACK;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    f.state = READY;
    f.shuffles = 0;
    f.index = place(t);
    makecontext(&f.context, fiber_main, 0);
  }
  do {
    for (int t = n - 1; t > 0; --t) std::swap(order[t], order[random_below(t + 1)]);
    for (int t : order)
      if (fibers[t].state == READY) { current = t; threadIdx = fibers[t].index; swapcontext(&scheduler, &fibers[t].context); }
  } while (release() && !failure[0]);
}

static const char* run_grid(Body f, void* args, const int* grid, const int* block, uint64_t seed) {
  failure[0] = 0;
  random_state = seed;
  body = f;
  arguments = args;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  launch_start = ++epoch;
  int n = grid[0] * grid[1] * grid[2];
  std::vector<int> order(n);
  for (int i = 0; i < n; ++i) order[i] = i;
  for (int i = n - 1; i > 0; --i) std::swap(order[i], order[random_below(i + 1)]);
  for (int i : order) {
    run_block({i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]});
    if (failure[0]) break;
  }
  return failure[0] ? failure : nullptr;
}

template <typename T> static Global<T> global(void* pointer, long count, std::vector<Cell>& cells, const char* name, const char* kernel) {
  cells.resize(count);
  Global<T> result;
  (Memory<std::remove_const_t<T>>&)result = {(std::remove_const_t<T>*)pointer, count, cells.data(), true, name, kernel};
  return result;
}

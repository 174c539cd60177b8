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
  Place operator-(long k) const { return {memory, i - k}; }
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

// --- instructions of a warp: all of its lanes bring what they have, and then each takes what it gets -----------------------

static uint32_t brought[2][1024][6];
static const uint32_t* gather(const uint32_t* mine, int words, int line) {
  int me = current, slot = fibers[me].shuffles++ & 1;
  memcpy(brought[slot][me], mine, words * 4);
  sleep_as(SHUFFLING, line);
  return brought[slot][me - me % 32];
}

// The bits of element `e` of what lane `lane` brought, `first` words on: 16 bits each, or 32.
static unsigned half_of(const uint32_t* all, int lane, int first, int e) { return all[lane * 6 + first + e / 2] >> (e % 2 * 16) & 0xffff; }
static float word_of(const uint32_t* all, int lane, int first, int e) { return __uint_as_float(all[lane * 6 + first + e]); }
static inline float float16_of(unsigned bits) { return float16_value((unsigned short)bits); }
static inline float bfloat16_of(unsigned bits) { return __uint_as_float(bits << 16); }
static inline float tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000); }

// Where element (row, column) of a matrix is, from the tables of the PTX ISA, section "mma": the lane, and its number there.
// `each` elements follow one another in a lane, `span` = 4 * each columns further on (or 8 rows) the lane has the next ones.
template <int each> static float product(const uint32_t* all, int row, int column, int depth, float (*value)(const uint32_t*, int, int, int)) {
  float sum = 0;
  const int span = 4 * each;
  for (int k = 0; k < depth; ++k) {
    int lane = k % span / each;
    int a = (k / span * 2 + row / 8) * each + k % each, b = k / span * each + k % each;
    sum += value(all, row % 8 * 4 + lane, 0, a) * value(all, column * 4 + lane, 4, b);
  }
  return sum;
}
static float f16_at(const uint32_t* all, int lane, int first, int e) { return float16_of(half_of(all, lane, first, e)); }
static float bf16_at(const uint32_t* all, int lane, int first, int e) { return bfloat16_of(half_of(all, lane, first, e)); }
static float tf32_at(const uint32_t* all, int lane, int first, int e) {
  if (__float_as_uint(word_of(all, lane, first, e)) & 0x1fff) FAIL("a factor of a tf32 product has not been rounded");
  return word_of(all, lane, first, e);
}

template <int each, typename T> static void mma(float sums[4], const T* a, const T* b, int depth, float (*value)(const uint32_t*, int, int, int), int line) {
  uint32_t mine[6];
  memcpy(mine, a, 16);
  memcpy(mine + 4, b, 8);
  const uint32_t* all = gather(mine, 6, line);
  int lane = current % 32;
  for (int e = 0; e < 4; ++e) sums[e] = product<each>(all, lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2, depth, value);
}
template <int each, typename T> static void mma_f32(float* c, const T* a, const T* b, int depth, float (*value)(const uint32_t*, int, int, int), int line) {
  float sums[4];
  mma<each>(sums, a, b, depth, value, line);
  for (int e = 0; e < 4; ++e) c[e] += sums[e];
}
static void mma_f16(unsigned short* c, const unsigned short* a, const unsigned short* b, int line) {
  float sums[4];
  mma<2>(sums, a, b, 16, f16_at, line);
  for (int e = 0; e < 4; ++e) c[e] = float16_bits(float16_value(c[e]) + sums[e]);
}
#define mma_m16n8k16_f16_f32(c, a, b) mma_f32<2>(c, a, b, 16, f16_at, __LINE__)
#define mma_m16n8k16_bf16_f32(c, a, b) mma_f32<2>(c, a, b, 16, bf16_at, __LINE__)
#define mma_m16n8k8_tf32_f32(c, a, b) mma_f32<1>(c, a, b, 8, tf32_at, __LINE__)
#define mma_m16n8k16_f16_f16(c, a, b) mma_f16(c, a, b, __LINE__)

template <typename T> static void ldmatrix(void* r0, void* r1, void* r2, void* r3, const Place<T>& row, bool transposed, int line) {
  uint32_t mine[4];
  memcpy(mine, (const int4*)row, 16);
  const uint32_t* all = gather(mine, 4, line);
  int lane = current % 32;
  void* registers[4] = {r0, r1, r2, r3};
  for (int m = 0; m < 4; ++m) {
    uint32_t bits = 0;
    for (int e = 0; e < 2; ++e) {
      int r = transposed ? lane % 4 * 2 + e : lane / 4, c = transposed ? lane / 4 : lane % 4 * 2 + e;
      bits |= half_of(all, m * 8 + r, 0, c) << (16 * e);
    }
    memcpy(registers[m], &bits, 4);
  }
}
#define ldmatrix_x4(r0, r1, r2, r3, row) ldmatrix(r0, r1, r2, r3, row, false, __LINE__)
#define ldmatrix_x4_trans(r0, r1, r2, r3, row) ldmatrix(r0, r1, r2, r3, row, true, __LINE__)

// Asynchronous copies happen as late as they may: when they are waited for. Their target is touched from the start.
typedef std::vector<std::function<void()>> Group;
static std::vector<std::vector<Group>> copies;  // by thread; the last group is not committed
static std::vector<Group>& groups_of(int thread) {
  if ((int)copies.size() <= thread) copies.resize(thread + 1);
  if (copies[thread].empty()) copies[thread].resize(1);
  return copies[thread];
}
template <int bytes> struct Moved { char data[bytes]; };
template <> struct Moved<4> { int data; };
template <> struct Moved<8> { int2 data; };
template <> struct Moved<16> { int4 data; };
template <int bytes, typename T, typename U> static void copy_async(const Place<T>& to, const Place<U>& from, bool there = true) {
  to.template at<Moved<bytes>>(true);
  groups_of(current).back().push_back([to, from, there] {
    *to.template at<Moved<bytes>>(true) = there ? *from.template at<const Moved<bytes>>(false) : Moved<bytes>{};
  });
}
static void copy_async_commit() { groups_of(current).emplace_back(); }
template <int latest> static void copy_async_wait() {
  std::vector<Group>& groups = groups_of(current);
  while ((int)groups.size() - 1 > latest) {
    for (auto& copy : groups.front()) copy();
    groups.erase(groups.begin());
  }
}
static bool copying(int thread) {
  for (const Group& group : groups_of(thread)) if (!group.empty()) return true;
  return false;
}

typedef void (*Body)(void*);
static Body body;
static void* arguments;
static void fiber_main() {
  body(arguments);
  if (copying(current)) FAIL("thread %d ends with copies that it has not waited for", current);
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

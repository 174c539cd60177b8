// The machine of emulation.h: fibers, barriers, shuffles, and what watches the accesses to memory.
#include "emulation.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

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

// Of zeros: untouched, as epochs begin at 1. `moment` is that of the last store.
struct Cell { int writer, reader; unsigned written, read, first_read; uint64_t moment; };
static uint64_t moments;

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
    c.moment = ++moments;
  } else {
    c.reader = c.read == epoch && c.reader != current ? -2 : current;
    c.read = epoch;
    if (c.first_read < launch_start) c.first_read = epoch;
  }
}

long Watched::at(long i, bool writes, long n) const {
  if (i < 0 || i + n > count) { FAIL("%s: index %ld of %s is outside 0 .. %ld", kernel, i, name, count - 1); i = 0; }
  for (long k = 0; k < n; ++k) touch(cells[i + k], writes, across, name, i + k);
  return i;
}

void Watched::check_aligned(const void* p, long i, size_t bytes) const {
  if ((uintptr_t)p % bytes) FAIL("%s: %s + %ld is not aligned to %zu bytes", kernel, name, i, bytes);
}

// Untouched cells take no memory, so that arrays may be larger than the machine.
struct Cells {
  void* start; size_t bytes;
  Cells(long n) : bytes((n + 1) * sizeof(Cell)) { start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }
  Cells(const Cells&) = delete;
  ~Cells() { munmap(start, bytes); }
};
static std::list<Cells> of_launch;
static std::list<std::vector<Cell>> of_shared;
Cell* cells_of_launch(long n) { return (Cell*)of_launch.emplace_back(n).start; }
Cell* shared_cells(long n) { return of_shared.emplace_back(n).data(); }

static std::list<std::vector<int4>> shared;
static void erase(std::vector<int4>& bytes) { memset((void*)bytes.data(), 0xff, bytes.size() * sizeof(int4)); }
void* shared_bytes(long n) {
  erase(shared.emplace_back((n + 15) / 16));
  return shared.back().data();
}

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
void barrier(int line) { sleep_as(WAITING, line); }

static double exchanged[2][1024];
void shuffle_xor(unsigned mask, const void* value, void* result, size_t bytes, int distance, int line) {
  int me = current, slot = fibers[me].shuffles++ & 1, lane = me % 32;
  memcpy(&exchanged[slot][me], value, bytes);
  if (!(mask >> lane & 1)) FAIL("lane %d is not in the mask %x of its shuffle", lane, mask);
  sleep_as(SHUFFLING, line);
  int other = me - lane + (lane ^ distance);
  if (other >= (int)fibers.size() || !(mask >> (lane ^ distance) & 1)) { FAIL("lane %d shuffles with lane %d, which is not there", lane, lane ^ distance); other = me; }
  memcpy(result, &exchanged[slot][other], bytes);
}

// --- instructions of a warp: all of its lanes bring what they have, and then each takes what it gets -----------------------

const int WORDS = 12;  // that a lane brings, at most
static uint32_t brought[2][1024][WORDS];
static const uint32_t* gather(const uint32_t* mine, int words, int line) {
  int me = current, slot = fibers[me].shuffles++ & 1;
  memcpy(brought[slot][me], mine, words * 4);
  sleep_as(SHUFFLING, line);
  return brought[slot][me - me % 32];
}

// The bits of element `e` of what lane `lane` brought, `first` words on: 16 bits each, or 32.
static unsigned half_of(const uint32_t* all, int lane, int first, int e) { return all[lane * WORDS + first + e / 2] >> (e % 2 * 16) & 0xffff; }
static float word_of(const uint32_t* all, int lane, int first, int e) { return __uint_as_float(all[lane * WORDS + first + e]); }
static inline float float16_of(unsigned bits) { return float16_value((unsigned short)bits); }
static inline float bfloat16_of(unsigned bits) { return __uint_as_float(bits << 16); }

// Where element (row, column) of a matrix is, from the tables of the PTX ISA, section "mma": the lane, and its number there.
// `each` elements follow one another in a lane, `span` = 4 * each columns further on (or 8 rows) the lane has the next ones.
template <int each, typename T> static T product(const uint32_t* all, int row, int column, int depth, T (*left)(const uint32_t*, int, int, int), T (*right)(const uint32_t*, int, int, int)) {
  T sum = 0;
  const int span = 4 * each;
  for (int k = 0; k < depth; ++k) {
    int lane = k % span / each;
    int a = (k / span * 2 + row / 8) * each + k % each, b = k / span * each + k % each;
    sum += left(all, row % 8 * 4 + lane, 0, a) * right(all, column * 4 + lane, sizeof(T), b);
  }
  return sum;
}
static float f16_at(const uint32_t* all, int lane, int first, int e) { return float16_of(half_of(all, lane, first, e)); }
static float bf16_at(const uint32_t* all, int lane, int first, int e) { return bfloat16_of(half_of(all, lane, first, e)); }
static float tf32_at(const uint32_t* all, int lane, int first, int e) {
  if (__float_as_uint(word_of(all, lane, first, e)) & 0x1fff) FAIL("a factor of a tf32 product has not been rounded");
  return word_of(all, lane, first, e);
}

// The type of sums has 8 bytes where factors have.
template <int each, typename T> static void mma(T sums[4], const void* a, const void* b, int depth, T (*left)(const uint32_t*, int, int, int), T (*right)(const uint32_t*, int, int, int), int line) {
  uint32_t mine[WORDS];
  const int words = sizeof(T);
  memcpy(mine, a, words * 4);
  memcpy(mine + words, b, words * 2);
  const uint32_t* all = gather(mine, words * 3 / 2, line);
  int lane = current % 32;
  for (int e = 0; e < 4; ++e) sums[e] = product<each>(all, lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2, depth, left, right);
}
template <int each> static void mma_f32(float* c, const void* a, const void* b, int depth, float (*value)(const uint32_t*, int, int, int), int line) {
  float sums[4];
  mma<each>(sums, a, b, depth, value, value, line);
  for (int e = 0; e < 4; ++e) c[e] += sums[e];
}
void mma_f16_f32(float* c, const void* a, const void* b, int line) { mma_f32<2>(c, a, b, 16, f16_at, line); }
void mma_bf16_f32(float* c, const void* a, const void* b, int line) { mma_f32<2>(c, a, b, 16, bf16_at, line); }
void mma_tf32_f32(float* c, const void* a, const void* b, int line) { mma_f32<1>(c, a, b, 8, tf32_at, line); }
void mma_f16_f16(unsigned short* c, const void* a, const void* b, int line) {
  float sums[4];
  mma<2>(sums, a, b, 16, f16_at, f16_at, line);
  for (int e = 0; e < 4; ++e) c[e] = float16_bits(float16_value(c[e]) + sums[e]);
}

static uint32_t s8_at(const uint32_t* all, int lane, int first, int e) { return (int8_t)(half_of(all, lane, first, e / 2) >> e % 2 * 8); }
static uint32_t u8_at(const uint32_t* all, int lane, int first, int e) { return (uint8_t)(half_of(all, lane, first, e / 2) >> e % 2 * 8); }
void mma_bytes(int* c, const void* a, const void* b, bool left, bool right, int line) {
  uint32_t sums[4];
  mma<4>(sums, a, b, 32, left ? s8_at : u8_at, right ? s8_at : u8_at, line);
  for (int e = 0; e < 4; ++e) c[e] = (int)((uint32_t)c[e] + sums[e]);
}
static double f64_at(const uint32_t* all, int lane, int first, int e) {
  double value;
  memcpy(&value, all + lane * WORDS + first + 2 * e, 8);
  return value;
}
void mma_f64_f64(double* c, const void* a, const void* b, int line) {
  double sums[4];
  mma<2>(sums, a, b, 8, f64_at, f64_at, line); // four of m8n8k4, on even and on odd steps
  for (int e = 0; e < 4; ++e) c[e] += sums[e];
}

void ldmatrix(void* r0, void* r1, void* r2, void* r3, const int4* row, bool transposed, int line) {
  uint32_t mine[4];
  memcpy(mine, row, 16);
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

// --- asynchronous copies ----------------------------------------------------------------------------------------------

typedef std::vector<std::function<void()>> Group;
static std::vector<std::vector<Group>> copies;  // by thread; the last group is not committed
static std::vector<Group>& groups_of(int thread) {
  if ((int)copies.size() <= thread) copies.resize(thread + 1);
  if (copies[thread].empty()) copies[thread].resize(1);
  return copies[thread];
}
void copy_later(std::function<void()> copy) { groups_of(current).back().push_back(std::move(copy)); }
void copy_async_commit() { groups_of(current).emplace_back(); }
void copy_async_wait_for(int latest) {
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

// --- products of warpgroups -------------------------------------------------------------------------------------------

struct Product { char* c; size_t bytes; int columns; bool bf16, half, committed; Factor a, b; uint64_t moment; };
struct Warpgroups {
  std::vector<std::vector<Product>> going;                           // by thread
  std::vector<std::map<const void*, std::vector<char>>> registers;   // by thread: what products may find in them
  std::vector<uint64_t> fenced;                                      // by thread: the moment of its last proxy_fence
  std::vector<std::vector<std::array<long, 5>>> issued;              // by warpgroup
  std::vector<size_t> count;                                         // of products, by thread
};
static Warpgroups groups_of_warps;
static void reset_products(int threads) {
  groups_of_warps = {};
  groups_of_warps.going.resize(threads);
  groups_of_warps.registers.resize(threads);
  groups_of_warps.fenced.resize(threads);
  groups_of_warps.issued.resize(threads / 128 + 1);
  groups_of_warps.count.resize(threads);
}
void proxy_fence() { groups_of_warps.fenced[current] = ++moments; }
void wgmma_commit() { for (Product& p : groups_of_warps.going[current]) p.committed = true; }
void wgmma_registers(const void* c, size_t bytes) {
  groups_of_warps.registers[current][c].assign((const char*)c, (const char*)c + bytes);
}

// PTX ISA, "Shared Memory Matrix Layout": the place of the element of row `r` (column, of the right factor) and step `k`.
static long place_of(const Factor& f, int r, int k) {
  long byte = f.start * 2 + (f.transposed ? r / 64 * f.panel + k * 128 + r % 64 * 2 : r * 128 + k * 2);
  return (byte ^ (byte >> 7 & 7) << 4) / 2;
}
static float value_of(const Product& p, const Factor& f, int r, int k) {
  unsigned bits = f.data[place_of(f, r, k)];
  return p.bf16 ? bfloat16_of(bits) : float16_of(bits);
}
// The threads of a warpgroup touch all elements of the factors together.
static void touch_factors(const Product& p, bool first) {
  for (int e = current % 128; e < (64 + p.columns) * 16; e += 128) {
    const Factor& f = e < 64 * 16 ? p.a : p.b;
    long i = f.memory->at(place_of(f, e < 64 * 16 ? e / 16 : e / 16 - 64, e % 16), false, 1);
    const Cell& cell = f.memory->cells[i];
    if (first && cell.written && cell.moment > groups_of_warps.fenced[cell.writer])
      FAIL("%s[%ld] was stored without a proxy_fence before a product of a warpgroup reads it", f.memory->name, i);
    if (!first && cell.moment > p.moment) FAIL("%s[%ld] is stored while a product of a warpgroup reads it", f.memory->name, i);
  }
}

void wgmma_issue(void* c, int columns, bool bf16, bool half, Factor a, Factor b, int line) {
  Warpgroups& w = groups_of_warps;
  Product p{(char*)c, (size_t)columns / 2 * (half ? 2 : 4), columns, bf16, half, false, a, b, ++moments};
  std::array<long, 5> mine = {line, (long)a.memory, a.start, (long)b.memory, b.start};
  auto& issued = w.issued[current / 128];
  size_t n = w.count[current]++;
  if (blockDim.x * blockDim.y * blockDim.z % 128) FAIL("a product of a warpgroup in a block of other threads");
  if (n == issued.size()) issued.push_back(mine);
  if (n > issued.size() || issued[n] != mine) FAIL("threads of a warpgroup multiply different matrices");
  bool again = false;
  for (const Product& q : w.going[current]) again |= q.c == p.c;
  std::vector<char>& known = w.registers[current][c];
  if (!again && (known.size() < p.bytes || memcmp(known.data(), c, p.bytes))) {
    FAIL("registers of a product are written without a wgmma_fence");
    known.resize(p.bytes);
  }
  memset(c, 0xff, p.bytes);
  touch_factors(p, true);
  w.going[current].push_back(p);
}

void wgmma_wait_for_all() {
  Warpgroups& w = groups_of_warps;
  std::set<char*> seen;
  int warp = current % 128 / 32, lane = current % 32;
  for (const Product& p : w.going[current]) {
    if (!p.committed) FAIL("products of a warpgroup are waited for that are in no group");
    if (seen.insert(p.c).second) {
      for (size_t n = 0; n < p.bytes; ++n) if (p.c[n] != (char)0xff) FAIL("registers of a product are written while it goes on");
      memcpy(p.c, w.registers[current][p.c].data(), p.bytes);
    }
    touch_factors(p, false);
    std::vector<float> sums(p.columns / 2);
    for (int k = 0; k < 16 && !failure[0]; ++k) {
      float left[2] = {value_of(p, p.a, warp * 16 + lane / 4, k), value_of(p, p.a, warp * 16 + lane / 4 + 8, k)};
      for (int n = 0; n < p.columns / 4; ++n) {
        float right = value_of(p, p.b, n / 2 * 8 + lane % 4 * 2 + n % 2, k);
        for (int i = 0; i < 2; ++i) sums[n / 2 * 4 + i * 2 + n % 2] += left[i] * right;
      }
    }
    for (int e = 0; e < p.columns / 2; ++e) {
      if (p.half) ((unsigned short*)p.c)[e] = float16_bits(float16_value(((unsigned short*)p.c)[e]) + sums[e]);
      else ((float*)p.c)[e] += sums[e];
    }
  }
  w.going[current].clear();
}

// --- a launch ---------------------------------------------------------------------------------------------------------

typedef void (*Body)(void*);
static Body body;
static void* arguments;
static void fiber_main() {
  body(arguments);
  if (!groups_of_warps.going[current].empty()) FAIL("thread %d ends with products that it has not waited for", current);
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
  for (auto& bytes : shared) erase(bytes);
  int n = blockDim.x * blockDim.y * blockDim.z;
  reset_products(n);
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

// The blocks that run, by number, x fastest; all where there are none.
static std::vector<long> chosen;
extern "C" void choose_blocks(const long* numbers, long n) { chosen.assign(numbers, numbers + n); }

const char* run_grid(Body f, void* args, const int* grid, const int* block, uint64_t seed) {
  failure[0] = 0;
  random_state = seed;
  body = f;
  arguments = args;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  launch_start = ++epoch;
  std::vector<long> order = chosen;
  for (long i = 0, n = (long)grid[0] * grid[1] * grid[2]; chosen.empty() && i < n; ++i) order.push_back(i);
  for (long i = (long)order.size() - 1; i > 0; --i) std::swap(order[i], order[random_below(i + 1)]);
  for (long i : order) {
    run_block({(int)(i % grid[0]), (int)(i / grid[0] % grid[1]), (int)(i / grid[0] / grid[1])});
    if (failure[0]) break;
  }
  of_launch.clear();
  return failure[0] ? failure : nullptr;
}

// --- undefined behaviour ----------------------------------------------------------------------------------------------

// Kernels are compiled with -fsanitize, which calls these. What they are given begins with a place in the source.
struct Place_in_source { const char* file; uint32_t line, column; };
#define UNDEFINED(what, ...) \
  extern "C" void __ubsan_handle_##what(const Place_in_source* at, ...) { FAIL("undefined behaviour: " #what " at line %u", at->line); }
UNDEFINED(add_overflow) UNDEFINED(sub_overflow) UNDEFINED(mul_overflow) UNDEFINED(negate_overflow) UNDEFINED(divrem_overflow)
UNDEFINED(shift_out_of_bounds) UNDEFINED(out_of_bounds) UNDEFINED(float_cast_overflow)

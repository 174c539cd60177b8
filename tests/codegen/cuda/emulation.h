// CUDA C run on the CPU, one thread at a time, with traps: each CUDA thread is a fiber that runs until its next barrier; which
// runs next is drawn at random. Elements of shared and global memory remember who touched them since the last barrier.
//
// Here is what emitted kernels name; the machine that runs them is in emulation.cpp, which is compiled once for all of them.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <functional>
#include <type_traits>

#define __device__
#define __forceinline__ inline
#define __align__(n) alignas(n)

struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct dim3 { int x, y, z; };
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

static float __uint_as_float(unsigned u) { float x; memcpy(&x, &u, 4); return x; }
static float __int_as_float(int u) { float x; memcpy(&x, &u, 4); return x; }
static unsigned __float_as_uint(float x) { unsigned u; memcpy(&u, &x, 4); return u; }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float float16_value(unsigned short bits) { _Float16 h; memcpy(&h, &bits, 2); return (float)h; }
static inline unsigned short float16_bits(float x) { _Float16 h = (_Float16)x; unsigned short b; memcpy(&b, &h, 2); return b; }
static inline float tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000) & 0xffffe000); }

// An approximate reciprocal: wrong by a unit in the last place up or down as the bits have it; subnormal numbers are zeros. From
// it one step makes the nearest reciprocal, by which the assembler expands rcp.rn: no unit is wrong where a step would not mend it.
static inline float inverse_estimate(float x) {
  if (!(fabsf(x) > 0 && fabsf(x) < INFINITY)) return 1 / x;
  if (fabsf(x) < 0x1p-126f) return copysignf(INFINITY, x);
  float r = 1 / x;
  unsigned bits = __float_as_uint(x) * 2654435761u >> 30;
  if (~__float_as_uint(x) & 0x7fffff) r = bits == 0 ? nextafterf(r, 0) : bits == 1 ? nextafterf(r, 2 * r) : r;
  return fabsf(r) < 0x1p-126f ? copysignf(0, r) : r;
}
static inline double inverse_estimate(double x) {
  if (!(fabs(x) > 0 && fabs(x) < INFINITY)) return 1 / x;
  return 1 / x * (1 + ((int)(__float_as_uint((float)x) * 2654435761u >> 30) - 2) * 0x1p-21);
}

// --- memory -----------------------------------------------------------------------------------------------------------

struct Cell;  // who touched an element, and when

struct Watched {
  long count; Cell* cells; bool across; const char* name; const char* kernel;
  long at(long i, bool writes, long n) const;  // the index, after n elements from there on were touched
  void check_aligned(const void* p, long i, size_t bytes) const;
};

template <typename T> struct Memory : Watched {
  T* data;
  T* at(long i, bool writes, long n = 1) const { return data + Watched::at(i, writes, n); }
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
    T* p = memory.at(i, writes, sizeof(U) / sizeof(T));
    memory.check_aligned(p, i, sizeof(U));
    return (U*)p;
  }
  Place operator+(long k) const { return {memory, i + k}; }
  Place operator-(long k) const { return {memory, i - k}; }
  template <typename U> explicit operator const U*() const { return at<U>(false); }
  template <typename U, typename = std::enable_if_t<!std::is_const_v<U>>> explicit operator U*() const { return at<U>(true); }
};

Cell* cells_of_launch(long n);
template <typename T> struct Global : Memory<T> {
  Global(void* data, long n, const char* name, const char* kernel) : Memory<T>{{n, cells_of_launch(n), true, name, kernel}, (T*)data} {}
  Ref<T> operator[](long i) const { return {*this, i}; }
  Place<T> operator+(long i) const { return {*this, i}; }
};
template <typename T> struct Global<const T> : Memory<T> {
  Global(void* data, long n, const char* name, const char* kernel) : Memory<T>{{n, cells_of_launch(n), true, name, kernel}, (T*)data} {}
  T operator[](long i) const { return *this->at(i, false); }
  Place<T> operator+(long i) const { return {*this, i}; }
};

// Shared memory belongs to a block; it is filled with garbage before each.
void* shared_bytes(long n);
Cell* shared_cells(long n);
template <typename T> struct Shared : Memory<T> {
  Shared(long n, const char* name, const char* kernel)
      : Memory<T>{{n, shared_cells(n), false, name, kernel}, (T*)shared_bytes(n * sizeof(T))} {}
  Ref<T> operator[](long i) const { return {*this, i}; }
  Place<T> operator+(long i) const { return {*this, i}; }
};

// --- barriers and instructions of a warp ------------------------------------------------------------------------------

void barrier(int line);
#define __syncthreads() barrier(__LINE__)

void shuffle_xor(unsigned mask, const void* value, void* result, size_t bytes, int distance, int line);
template <typename T> static T shuffled_xor(unsigned mask, T value, int distance, int line) {
  T result;
  shuffle_xor(mask, &value, &result, sizeof value, distance, line);
  return result;
}
#define __shfl_xor_sync(mask, value, distance) shuffled_xor<decltype(+(value))>(mask, value, distance, __LINE__)

#define __popc __builtin_popcount
#define __popcll __builtin_popcountll

void mma_f16_f32(float* c, const void* a, const void* b, int line);
void mma_bf16_f32(float* c, const void* a, const void* b, int line);
void mma_tf32_f32(float* c, const void* a, const void* b, int line);
void mma_f16_f16(unsigned short* c, const void* a, const void* b, int line);
void mma_bytes(int* c, const void* a, const void* b, bool left_signed, bool right_signed, int line);
void mma_f64_f64(double* c, const void* a, const void* b, int line);
#define mma_m16n8k32_s8_s32(c, a, b) mma_bytes(c, a, b, true, true, __LINE__)
#define mma_m16n8k32_u8_s32(c, a, b) mma_bytes(c, a, b, false, false, __LINE__)
#define mma_m16n8k32_s8u8_s32(c, a, b) mma_bytes(c, a, b, true, false, __LINE__)
#define mma_m16n8k32_u8s8_s32(c, a, b) mma_bytes(c, a, b, false, true, __LINE__)
#define mma_m16n8k8_f64_f64(c, a, b) mma_f64_f64(c, a, b, __LINE__)
#define mma_m16n8k16_f16_f32(c, a, b) mma_f16_f32(c, a, b, __LINE__)
#define mma_m16n8k16_bf16_f32(c, a, b) mma_bf16_f32(c, a, b, __LINE__)
#define mma_m16n8k8_tf32_f32(c, a, b) mma_tf32_f32(c, a, b, __LINE__)
#define mma_m16n8k16_f16_f16(c, a, b) mma_f16_f16(c, a, b, __LINE__)

void ldmatrix(void* r0, void* r1, void* r2, void* r3, const int4* row, bool transposed, int line);
#define ldmatrix_x4(r0, r1, r2, r3, row) ldmatrix(r0, r1, r2, r3, (const int4*)(row), false, __LINE__)
#define ldmatrix_x4_trans(r0, r1, r2, r3, row) ldmatrix(r0, r1, r2, r3, (const int4*)(row), true, __LINE__)

// Products of warpgroups happen as late as they may, too: when they are waited for. Until then their registers hold garbage, and
// nothing may be stored where their factors are. They do not see what is stored without a proxy_fence behind it.
struct Factor { const Watched* memory; const unsigned short* data; long start; bool transposed; int panel; };
void wgmma_issue(void* c, int columns, bool bf16, bool half, Factor a, Factor b, int line);
void wgmma_registers(const void* c, size_t bytes);
void wgmma_wait_for_all();
void wgmma_commit();
void proxy_fence();
template <int columns, bool bf16, int a_transposed, int a_panel, int b_transposed, int b_panel, typename C, typename T>
static void wgmma(C* c, const Place<T>& a, const Place<T>& b, int line) {
  wgmma_issue(c, columns, bf16, sizeof(C) == 2, {&a.memory, a.memory.data, a.i, a_transposed, a_panel}, {&b.memory, b.memory.data, b.i, b_transposed, b_panel}, line);
}
template <int count, typename T> static void wgmma_fence(T* c) { wgmma_registers(c, count * sizeof(T)); }
template <int count, typename T> static void wgmma_wait(T* c) {
  wgmma_wait_for_all();
  wgmma_registers(c, count * sizeof(T));
}

// Asynchronous copies happen as late as they may: when they are waited for. Their target is touched from the start.
void copy_later(std::function<void()> copy);
void copy_async_commit();
void copy_async_wait_for(int latest);
template <int latest> static void copy_async_wait() { copy_async_wait_for(latest); }

template <int bytes> struct Moved { char data[bytes]; };
template <> struct Moved<4> { int data; };
template <> struct Moved<8> { int2 data; };
template <> struct Moved<16> { int4 data; };
template <int bytes, typename T, typename U> static void copy_async(const Place<T>& to, const Place<U>& from, bool there = true) {
  to.template at<Moved<bytes>>(true);
  copy_later([to, from, there] {
    *to.template at<Moved<bytes>>(true) = there ? *from.template at<const Moved<bytes>>(false) : Moved<bytes>{};
  });
}

// --- a launch ---------------------------------------------------------------------------------------------------------

// Runs body(arguments) as each thread; what went wrong, or null.
const char* run_grid(void (*body)(void*), void* arguments, const int* grid, const int* block, uint64_t seed);

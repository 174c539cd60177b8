"""The device functions that emitted CUDA C calls, by name; a program carries those that it uses. No header is needed."""

from __future__ import annotations

import re


def _ldmatrix(kind: str) -> str:
    name = f"ldmatrix_x4{'_' if kind else ''}{kind}"
    return f"""// Four 8 x 8 matrices of 16 bits from shared memory{", transposed" if kind else ""};
// lane l names row l % 8 of matrix l / 8.
__device__ __forceinline__ void {name}(void* r0, void* r1, void* r2, void* r3, const void* row) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{"." if kind else ""}{kind}.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(*(unsigned*)r0), "=r"(*(unsigned*)r1), "=r"(*(unsigned*)r2), "=r"(*(unsigned*)r3)
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}}"""


def _mma(factor: str, depth: int) -> str:
    kind = "float" if factor == "tf32" else "unsigned short"
    return f"""// c += a * b for matrices of 16 x 8, 16 x {depth} and {depth} x 8, which the lanes of a warp hold together.
__device__ __forceinline__ void mma_m16n8k{depth}_{factor}_f32(float* c, const {kind}* a, const {kind}* b) {{
  const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
  asm("mma.sync.aligned.m16n8k{depth}.row.col.f32.{factor}.{factor}.f32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}}"""


def _mma_bytes(left: str, right: str) -> str:
    kinds = {"s": "signed char", "u": "unsigned char"}
    name = left if left == right else left + right
    return f"""// c += a * b for matrices of 16 x 8, 16 x 32 and 32 x 8, which the lanes of a warp hold together; sums wrap.
__device__ __forceinline__ void mma_m16n8k32_{name}_s32(int* c, const {kinds[left[0]]}* a, const {kinds[right[0]]}* b) {{
  const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
  asm("mma.sync.aligned.m16n8k32.row.col.s32.{left}.{right}.s32 "
      "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}}"""


# In order: later ones may call earlier ones.
FUNCTIONS = {
    "minimum": """template <typename T> __device__ __forceinline__ T minimum(T a, T b) { return b < a ? b : a; }""",
    "maximum": """template <typename T> __device__ __forceinline__ T maximum(T a, T b) { return b > a ? b : a; }""",
    "magnitude": """template <typename T> __device__ __forceinline__ T magnitude(T a) {
  return a < 0 ? (T)(0 - (unsigned long long)a) : a; // of the least number, that number
}""",
    "floordiv": """// Division that rounds toward minus infinity; the least number by -1 wraps around, which has no meaning in C.
template <typename T> __device__ __forceinline__ T floordiv(T a, T b) {
  if (b == (T)-1) return (T)(0 - (unsigned long long)a);
  T q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}""",
    "floormod": """template <typename T> __device__ __forceinline__ T floormod(T a, T b) {
  if (b == (T)-1) return 0;
  T r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}""",
    "float_remainder": """// The remainder of floor division, which has the sign of b.
template <typename T> __device__ __forceinline__ T float_remainder(T a, T b) {
  T r = sizeof(T) == 4 ? fmodf(a, b) : fmod(a, b);
  return r == 0 ? copysign(r, b) : (b < 0) != (r < 0) ? r + b : r;
}""",
    "float_quotient": """// Floor division.
template <typename T> __device__ __forceinline__ T float_quotient(T a, T b) {
  if (b == 0) return a / b;
  T r = sizeof(T) == 4 ? fmodf(a, b) : fmod(a, b), q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return copysign(q, a / b);
  T whole = floor(q);
  return q - whole > (T)0.5 ? whole + 1 : whole;
}""",
    "saturated": """// A float toward zero, to one end of a type where it lies beyond; 0 for NaN.
template <typename T, typename F> __device__ __forceinline__ T saturated(F x, T low, T high) {
  return x != x ? (T)0 : x <= (F)low ? low : x >= (F)high ? high : (T)x;
}""",
    "inverse_estimate": """// 1 / x, within a unit in the last place of float and 2^-20 of double; subnormal numbers are zeros.
__device__ __forceinline__ float inverse_estimate(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ double inverse_estimate(double x) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}""",
    "normal_inverse": """// 1 / x, to the nearest if neither is subnormal.
__device__ __forceinline__ double normal_inverse(double x) { return 1.0 / x; }
__device__ __forceinline__ float normal_inverse(float x) {
  float r = inverse_estimate(x), s = fmaf(r, fmaf(-x, r, 1.0f), r);
  return s == s ? s : r; // infinity for zero, zero for infinity
}""",
    "quotient": """// x / y as IEEE 754 rounds it, without a call. Where no number is subnormal, the remainder corrects
// x / y to the nearest (Markstein, Computation of elementary functions, 1990); the compiler has the same steps. Others are
// divided as doubles, and rounded once more with the same result (Figueroa, When is double rounding innocuous, 1995).
__device__ __forceinline__ float quotient(float x, float y) {
#if __USE_FAST_MATH__
  return x / y;
#else
  float r = inverse_estimate(y);
  r = fmaf(r, fmaf(-y, r, 1.0f), r);
  float q = x * r;
  q = fmaf(fmaf(-y, q, x), r, q);
  if (fabsf(q) > 0x1p-120f && fabsf(q) < 0x1p120f && fabsf(x) > 0x1p-96f) return q;
  double a = x, b = y, estimate = inverse_estimate(b), s = estimate;
  s = fma(s, fma(-b, s, 1.0), s);
  s = fma(s, fma(-b, s, 1.0), s);
  double p = a * s;
  p = fma(fma(-b, p, a), s, p);
  return p == 0 || p != p ? a * estimate : p; // zeros, infinities and NaN
#endif
}""",
    "sigmoid": """template <typename T> __device__ __forceinline__ T sigmoid(T x) { return (T)1 / ((T)1 + (T)exp(-x)); }
template <> __device__ __forceinline__ float sigmoid(float x) { return quotient(1.0f, 1.0f + expf(-x)); }""",
    "copy_async_wait": """// The copies of this thread are there, but for the latest groups.
template <int groups> __device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}""",
    "copy_async_commit": """// The copies of this thread since the last group are a group.
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }""",
    "copy_async": """// 4, 8 or 16 bytes from global to shared memory, without waiting; zeros where they are not `there`.
template <int bytes> __device__ __forceinline__ void copy_async(void* to, const void* from) {
  unsigned address = (unsigned)__cvta_generic_to_shared(to);
  if (bytes == 16) asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(bytes) : "memory");
}
template <int bytes> __device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  unsigned address = (unsigned)__cvta_generic_to_shared(to), read = there ? bytes : 0;
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(read) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(bytes), "r"(read) : "memory");
}""",
    "tf32": """// To 10 bits of mantissa, to the nearest.
__device__ __forceinline__ float tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}""",
    "ldmatrix_x4": _ldmatrix(""),
    "ldmatrix_x4_trans": _ldmatrix("trans"),
    "mma_m16n8k16_f16_f32": _mma("f16", 16),
    "mma_m16n8k16_bf16_f32": _mma("bf16", 16),
    "mma_m16n8k8_tf32_f32": _mma("tf32", 8),
    **{f"mma_m16n8k32_{a if a == b else a + b}_s32": _mma_bytes(a, b) for a in ("s8", "u8") for b in ("s8", "u8")},
    "mma_m16n8k8_f64_f64": """// c += a * b for matrices of 16 x 8, 16 x 8 and 8 x 8, of a warp: four instructions.
__device__ __forceinline__ void mma_m16n8k8_f64_f64(double* c, const double* a, const double* b) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c[n % 2 * 2]), "+d"(c[n % 2 * 2 + 1])
        : "d"(a[n % 2 * 2 + n / 2]), "d"(b[n / 2]));
}""",
    "mma_m16n8k8_f32_f32": """// c += a * b for matrices of 16 x 8, 16 x 8 and 8 x 8; lanes of a row all have its factors.
__device__ __forceinline__ void mma_m16n8k8_f32_f32(float* c, const float* a, const float* b) {
#pragma unroll
  for (int n = 0; n < 32; ++n) {
    int k = n / 4, i = n / 2 % 2, j = n % 2;
    c[i * 2 + j] = fmaf(a[i * 8 + k], b[k * 2 + j], c[i * 2 + j]);
  }
}""",
    "mma_m16n8k16_f16_f16": """// c += a * b for matrices of 16 x 8, 16 x 16 and 16 x 8, which the lanes of a warp hold together.
__device__ __forceinline__ void mma_m16n8k16_f16_f16(unsigned short* c, const unsigned short* a, const unsigned short* b) {
  unsigned* z = (unsigned*)c;
  const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
      : "+r"(z[0]), "+r"(z[1])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}""",
    "float16_value": """__device__ __forceinline__ float float16_value(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}""",
    "float16_bits": """__device__ __forceinline__ unsigned short float16_bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}""",
    "bfloat16_value": """__device__ __forceinline__ float bfloat16_value(unsigned short bits) {
  return __uint_as_float((unsigned)bits << 16);
}""",
    "bfloat16_bits": """// To the nearest, ties to even.
__device__ __forceinline__ unsigned short bfloat16_bits(float x) {
  unsigned bits = __float_as_uint(x);
  return x != x ? 0x7fc0 : (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}""",
}


def prelude(text: str) -> str:
    """The functions that `text` calls, and those that these call."""
    used: list[str] = []
    for name, code in reversed(FUNCTIONS.items()):
        if re.search(rf"\b{name}[<(]", text):
            used.insert(0, code)
            text += code
    return "\n".join(used)

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


# The types of elements by their names in instructions.
_STORED = {"f16": "unsigned short", "bf16": "unsigned short", "s8": "signed char", "u8": "unsigned char", "tf32": "float",
           "f32": "float", "s32": "int"}  # fmt: skip


def _sums(kind: str, elements: int) -> tuple[str, str, str, int]:
    """The words `z` of elements of an instruction's result: the text that declares them, their places, operands and number."""
    word, constraint = ("float", "+f") if kind == "f32" else ("unsigned", "+r")
    count = elements // 2 if kind == "f16" else elements
    operands = ", ".join(f'"{constraint}"(z[{n}])' for n in range(count))
    return f"{word}* z = ({word}*)c;", ", ".join(f"%{n}" for n in range(count)), operands, count


def _mma(depth: int, left: str, right: str, total: str) -> tuple[str, str]:
    """The name and the text of a product of a warp by one instruction."""
    name = f"mma_m16n8k{depth}_{left if left == right else left + right}_{total}"
    held, places, operands, count = _sums(total, 4)
    a, b = (", ".join(f"%{count + n}" for n in words) for words in (range(4), range(4, 6)))
    return (
        name,
        f"""// c += a * b for matrices of 16 x 8, 16 x {depth} and {depth} x 8, which the lanes of a warp hold together.
__device__ __forceinline__ void {name}({_STORED[total]}* c, const {_STORED[left]}* a, const {_STORED[right]}* b) {{
  {held}
  const unsigned *x = (const unsigned*)a, *y = (const unsigned*)b;
  asm("mma.sync.aligned.m16n8k{depth}.row.col.{total}.{left}.{right}.{total} {{{places}}}, {{{a}}}, {{{b}}}, {{{places}}};"
      : {operands}
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}}""",
    )


def _grouped_product(columns: int, factor: str, total: str) -> str:
    """The text of a product of a warpgroup, whose descriptors say how factors lie."""
    held, places, operands, count = _sums(total, columns // 2)
    return f"""// c += a * b for matrices of 64 x {columns}, 64 x 16 and 16 x {columns}; c is there when it has been waited for.
template <int a_transposed, int a_panel, int b_transposed, int b_panel>
__device__ __forceinline__ void wgmma_m64n{columns}k16_{factor}_{total}({_STORED[total]}* c, const void* a, const void* b) {{
  {held}
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.{total}.{factor}.{factor} "
               "{{{places}}}, %{count}, %{count + 1}, 1, 1, 1, %{count + 2}, %{count + 3};"
               : {operands}
               : "l"(swizzled_matrix(a, a_panel)), "l"(swizzled_matrix(b, b_panel)), "n"(a_transposed), "n"(b_transposed)
               : "memory");
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
    "proxy_fence": """// Products of warpgroups, too, see what this thread stored in shared memory.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }""",
    "in_registers": """// What was computed before is in these registers, and stays there.
template <int count> __device__ __forceinline__ void in_registers(float* c) {
#pragma unroll
  for (int n = 0; n < count; ++n) asm volatile("" : "+f"(c[n])::"memory");
}
template <int count> __device__ __forceinline__ void in_registers(unsigned short* c) {
#pragma unroll
  for (int n = 0; n < count / 2; ++n) asm volatile("" : "+r"(((unsigned*)c)[n])::"memory");
}""",
    "wgmma_fence": """// Products of this warpgroup that follow see its registers.
template <int count, typename T> __device__ __forceinline__ void wgmma_fence(T* c) {
  in_registers<count>(c);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}""",
    "wgmma_commit": """// The products since the last group are a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }""",
    "wgmma_wait": """// All products are there, and have read their factors.
template <int count, typename T> __device__ __forceinline__ void wgmma_wait(T* c) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  in_registers<count>(c);
}""",
    "swizzled_matrix": """// The descriptor of a matrix in panels of 128 bytes: its start, the bytes to the next panel and to the
// next eight rows.
__device__ __forceinline__ unsigned long long swizzled_matrix(const void* start, int panel) {
  unsigned address = (unsigned)__cvta_generic_to_shared(start);
  return (address & 0x3ffff) >> 4 | (unsigned long long)(panel >> 4) << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}""",
    "tf32": """// To 10 bits of mantissa, to the nearest.
__device__ __forceinline__ float tf32(float x) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}""",
    "ldmatrix_x4": _ldmatrix(""),
    "ldmatrix_x4_trans": _ldmatrix("trans"),
    **dict(_mma(16, x, x, total) for x, total in (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"))),
    **dict([_mma(8, "tf32", "tf32", "f32"), *(_mma(32, x, y, "s32") for x in ("s8", "u8") for y in ("s8", "u8"))]),
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


_GROUPED = re.compile(r"wgmma_m64n(\d+)k16_(\w+)_(f\d+)")


def device_function(name: str) -> str:
    """The text of the function of a name; empty for other names."""
    m = _GROUPED.fullmatch(name)
    return _grouped_product(int(m[1]), m[2], m[3]) if m else FUNCTIONS.get(name, "")


def prelude(text: str) -> str:
    """The functions that `text` calls, and those that these call."""
    used = [device_function(name) for name in sorted({m[0] for m in _GROUPED.finditer(text)})]
    text += "".join(used)
    for name, code in reversed(FUNCTIONS.items()):
        if re.search(rf"\b{name}[<(]", text):
            used.insert(0, code)
            text += code
    return "\n".join(used)

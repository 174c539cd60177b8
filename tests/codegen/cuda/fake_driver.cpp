// A CUDA driver without a GPU, which cuda-python finds as libcuda.so.1: it checks what it is asked as the real one does, and runs
// kernels by the emulation, from the library that FAKE_CUDA_KERNELS names (`emulation.library`).
//
// Calls want the context current in their thread. Work of streams waits until somebody waits for it, and works then on memory that
// must still be there; kernels want their limits raised for much shared memory. A kernel that fails loses the context for good.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum {
  SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
  NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
};
const char* text_of(int error) { return error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : error == INVALID_CONTEXT ? "invalid device context" : "an error"; }

struct Function { std::string name; int dynamic = 48 << 10; const int* params; const char* (*entry)(long long*, int*, int*, uint64_t); };
struct Event { double milliseconds = -1; bool recorded = false; };
static pid_t owner;  // the process that called cuInit: a fork of it has no driver
static int lost;     // the error after which all calls fail
static char the_context, the_module;
static thread_local void* current;
static thread_local std::vector<void*> below;  // contexts that were current when others were pushed
static void* kernels;
static std::map<uintptr_t, size_t> memory;
static std::set<Function*> functions;
static std::set<Event*> events;
static std::vector<std::function<void()>> work;

static int state() {
  if (owner != getpid()) return NOT_INITIALIZED;
  return lost ? lost : current ? SUCCESS : INVALID_CONTEXT;
}
#define READY() do { if (int e = state()) return e; } while (0)

static int finish() {
  std::vector<std::function<void()>> now;
  now.swap(work);
  for (auto& w : now) if (!lost) w();
  return lost;
}

// The bytes from a place to the end of its allocation; 0 outside of all.
static size_t rest(uintptr_t p) {
  auto found = memory.upper_bound(p);
  if (found == memory.begin()) return 0;
  --found;
  return p < found->first + found->second ? found->first + found->second - p : 0;
}
static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

API cuInit(unsigned flags) { if (flags) return INVALID_VALUE; if (owner && owner != getpid()) return NOT_INITIALIZED; owner = getpid(); return SUCCESS; }
API cuGetErrorString(int error, const char** text) { *text = text_of(error); return SUCCESS; }
API cuGetExportTable(const void** table, const void*) { *table = nullptr; return NOT_FOUND; }  // NVRTC asks
API cuDeviceGetCount(int* n) { if (owner != getpid()) return NOT_INITIALIZED; *n = 1; return SUCCESS; }
API cuDeviceGet(int* device, int number) { if (owner != getpid()) return NOT_INITIALIZED; if (number) return INVALID_DEVICE; *device = 0; return SUCCESS; }
API cuDeviceGetName(char* name, int n, int) { snprintf(name, n, "Emulation"); return SUCCESS; }
API cuDriverGetVersion(int* version) { *version = 13000; return SUCCESS; }
API cuDeviceGetAttribute(int* value, int kind, int device) {
  static const std::map<int, int> known = {{13, 1980000}, {16, 132}, {38, 1 << 16}, {75, 9}, {76, 0}};
  if (device || !known.count(kind)) return INVALID_VALUE;
  *value = known.at(kind);
  return SUCCESS;
}
API cuDevicePrimaryCtxRetain(void** context, int device) { if (owner != getpid()) return NOT_INITIALIZED; if (device) return INVALID_DEVICE; *context = &the_context; return SUCCESS; }
API cuCtxSetCurrent(void* context) { if (context && context != &the_context) return INVALID_CONTEXT; current = context; return lost; }
API cuCtxGetCurrent(void** context) { *context = current; return lost; }
API cuCtxPushCurrent(void* context) { if (context != &the_context) return INVALID_CONTEXT; below.push_back(current); current = context; return lost; }
API cuCtxPopCurrent(void** context) { if (!current || below.empty()) return INVALID_CONTEXT; *context = current; current = below.back(); below.pop_back(); return lost; }

static std::string image;  // of the module
API cuModuleLoadData(void** module, const void* code) {
  READY();
  const unsigned char* p = (const unsigned char*)code;
  if (memcmp(p, "\177ELF\2", 5) || *(uint16_t*)(p + 18) != 190) return INVALID_IMAGE;
  uint64_t sections = *(uint64_t*)(p + 40) + (uint64_t) * (uint16_t*)(p + 58) * *(uint16_t*)(p + 60);
  image.assign((const char*)code, sections);
  if (!kernels) kernels = dlopen(getenv("FAKE_CUDA_KERNELS"), RTLD_NOW);
  *module = &the_module;
  return SUCCESS;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  READY();
  if (module != &the_module) return INVALID_HANDLE;
  std::string section = std::string(".text.") + name;
  if (image.find(section + std::string(1, 0)) == std::string::npos) return NOT_FOUND;
  Function* f = new Function{name};
  f->params = (const int*)dlsym(kernels, ("params_" + f->name).c_str());
  f->entry = (decltype(f->entry))dlsym(kernels, ("launch_" + f->name).c_str());
  if (!f->params || !f->entry) return NOT_FOUND;
  functions.insert(f);
  *function = f;
  return SUCCESS;
}
API cuFuncSetAttribute(Function* f, int kind, int value) {
  READY();
  if (!functions.count(f)) return INVALID_HANDLE;
  if (kind != 8 || value > 227 << 10) return INVALID_VALUE;
  f->dynamic = value;
  return SUCCESS;
}
API cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void*, void** params, void** extra) {
  READY();
  if (!functions.count(f)) return INVALID_HANDLE;
  if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || bz > 64 || gy > 65535 || gz > 65535 || extra) return INVALID_VALUE;
  if ((int)shared > f->dynamic) return INVALID_VALUE;
  std::vector<long long> values;
  for (int i = 0; i < f->params[0]; ++i) {  // elements of so many bytes at a pointer; a scalar of so many bytes, below zero
    int bytes = f->params[1 + i];
    switch (bytes) {
      case -8: values.push_back(*(int64_t*)params[i]); break;
      case -4: values.push_back(*(int32_t*)params[i]); break;
      case -2: values.push_back(*(int16_t*)params[i]); break;
      case -1: values.push_back(*(int8_t*)params[i]); break;
      default: values.push_back((long long)*(uintptr_t*)params[i]);
    }
    values.push_back(0);
  }
  work.push_back([=]() mutable {
    for (int i = 0; i < f->params[0]; ++i)
      if (f->params[1 + i] > 0 && !(values[2 * i + 1] = rest(values[2 * i]) / f->params[1 + i])) { lost = ILLEGAL_ADDRESS; return; }
    int grid[] = {(int)gx, (int)gy, (int)gz}, block[] = {(int)bx, (int)by, (int)bz};
    if (const char* message = f->entry(values.data(), grid, block, 1)) { fprintf(stderr, "%s\n", message); lost = ILLEGAL_ADDRESS; }
  });
  return SUCCESS;
}
API cuStreamSynchronize(void*) { READY(); return finish(); }
API cuCtxSynchronize(void) { READY(); return finish(); }

API cuMemAlloc(uintptr_t* p, size_t bytes) {
  READY();
  if (!bytes) return INVALID_VALUE;
  *p = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset((void*)*p, 0xff, bytes);
  memory[*p] = bytes;
  return SUCCESS;
}
API cuMemFree(uintptr_t p) {
  READY();
  if (int e = finish()) return e;
  if (!memory.erase(p)) return INVALID_VALUE;
  free((void*)p);
  return SUCCESS;
}
API cuMemcpyHtoD(uintptr_t to, const void* from, size_t bytes) { READY(); if (int e = finish()) return e; if (rest(to) < bytes) return INVALID_VALUE; memcpy((void*)to, from, bytes); return SUCCESS; }
API cuMemcpyDtoH(void* to, uintptr_t from, size_t bytes) { READY(); if (int e = finish()) return e; if (rest(from) < bytes) return INVALID_VALUE; memcpy(to, (void*)from, bytes); return SUCCESS; }
API cuMemsetD8Async(uintptr_t p, unsigned char value, size_t bytes, void*) {
  READY();
  if (rest(p) < bytes) return INVALID_VALUE;
  work.push_back([=] { if (rest(p) < bytes) lost = ILLEGAL_ADDRESS; else memset((void*)p, value, bytes); });
  return SUCCESS;
}

API cuEventCreate(Event** e, unsigned flags) { READY(); if (flags) return INVALID_VALUE; events.insert(*e = new Event); return SUCCESS; }
API cuEventDestroy(Event* e) { READY(); if (!events.erase(e)) return INVALID_HANDLE; finish(); delete e; return SUCCESS; }
API cuEventRecord(Event* e, void*) {
  READY();
  if (!events.count(e)) return INVALID_HANDLE;
  e->recorded = true;
  e->milliseconds = -1;
  work.push_back([=] { e->milliseconds = now(); });
  return SUCCESS;
}
API cuEventSynchronize(Event* e) { READY(); return events.count(e) ? finish() : INVALID_HANDLE; }
API cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  READY();
  if (!events.count(start) || !events.count(end) || !start->recorded || !end->recorded) return INVALID_HANDLE;
  if (start->milliseconds < 0 || end->milliseconds < 0) return NOT_READY;
  *milliseconds = (float)(end->milliseconds - start->milliseconds);
  return SUCCESS;
}

API cuGetProcAddress_v2(const char* symbol, void** function, int, uint64_t, int* status) {
  Dl_info me;
  dladdr((void*)&the_context, &me);
  *function = strcmp(symbol, "cuGetProcAddress") ? dlsym(dlopen(me.dli_fname, RTLD_NOW | RTLD_NOLOAD), symbol) : (void*)cuGetProcAddress_v2;
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
API cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags, int* status) { return cuGetProcAddress_v2(symbol, function, version, flags, status); }

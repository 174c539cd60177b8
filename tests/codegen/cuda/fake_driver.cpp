// A CUDA driver without a GPU, which cuda-python finds as libcuda.so.1: it checks what it is asked as the real one does, and runs
// kernels by the emulation, from the library that FAKE_CUDA_KERNELS names (`emulation.library`).
//
// Calls want the context current in their thread. Work of a stream waits until somebody waits for it: then it runs after what its
// order demands, and nothing else does, on memory that must still be there. The legacy stream (0 and 1) waits for blocking streams,
// and they for it; each host thread has a stream 2. Memory that a stream freed is given to its next allocation at once. A captured
// stream notes its work in a graph; calls that wait, allocate or load then fail unless their thread has relaxed its mode. Launches
// sleep a little, so that host threads interleave. Kernels want their limits raised for much shared memory. A kernel that fails
// loses the context for good.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum {
  SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400,
  NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};
const char* text_of(int error) { return error == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : error == INVALID_CONTEXT ? "invalid device context" : "an error"; }

struct Function { std::string name; int dynamic = 48 << 10; const int* params; const char* (*entry)(long long*, int*, int*, uint64_t); };
struct Event { double milliseconds = -1; bool recorded = false; int work = -1; };
typedef std::function<void()> Work;
typedef std::vector<Work> Graph;
struct Stream { bool blocking = true; int last = -1; Graph* captured = nullptr; int mode = 0; bool broken = false; std::vector<std::pair<uintptr_t, size_t>> freed; };
static pid_t owner;  // the process that called cuInit: a fork of it has no driver
static int lost;     // the error after which all calls fail
static char the_context;
static thread_local void* current;
static thread_local std::vector<void*> below;  // contexts that were current when others were pushed
static void* kernels;
static std::map<uintptr_t, size_t> memory;
static std::set<Function*> functions;
static std::set<Event*> events;
struct Module { std::string image; };
static std::set<Module*> modules;
static int unloaded;

// All work in the order in which it was launched; each waits for other work, by number.
struct Launched { Work work; std::vector<int> after; };
static std::map<int, Launched> pending;
static int next_work;
static Stream legacy;
static std::set<Stream*> streams;
static thread_local Stream own;
static std::map<Stream*, int> blocking_streams;  // all that legacy work waits for
static thread_local int relaxed;                 // the mode of capture of this thread, 2: anything goes
static std::recursive_mutex lock;
struct Guard { std::lock_guard<std::recursive_mutex> held{lock}; };

static Stream* stream_of(void* handle) {
  uintptr_t h = (uintptr_t)handle;
  if (h <= 1) return &legacy;
  if (h == 2) { blocking_streams[&own]; return &own; }
  return streams.count((Stream*)handle) ? (Stream*)handle : nullptr;
}
static int state() {
  if (owner != getpid()) return NOT_INITIALIZED;
  return lost ? lost : current ? SUCCESS : INVALID_CONTEXT;
}
#define READY() Guard guard; do { if (int e = state()) return e; } while (0)

// What breaks a capture: calls that wait, allocate or load, unless their thread has relaxed its mode.
static int unsafe() {
  if (relaxed == 2) return SUCCESS;
  for (Stream* s : streams) if (s->captured) { s->broken = true; return CAPTURE_UNSUPPORTED; }
  return SUCCESS;
}
#define SAFE() do { if (int e = unsafe()) return e; } while (0)

static int push(Stream* s, Work work, int also_after = -1) {
  if (s->captured) { s->captured->push_back(work); return -1; }
  Launched made{work, {s->last, also_after}};
  if (s == &legacy) for (auto& [other, last] : blocking_streams) made.after.push_back(other == s ? -1 : last);
  else if (s->blocking) made.after.push_back(legacy.last);
  pending[next_work] = made;
  s->last = next_work;
  if (s != &legacy && s->blocking) blocking_streams[s] = next_work;
  return next_work++;
}
static void run(int number) {
  auto found = pending.find(number);
  if (number < 0 || found == pending.end()) return;
  Launched now = found->second;
  pending.erase(found);
  for (int other : now.after) run(other);
  if (!lost) now.work();
}
// All work, the latest first as far as its order allows.
static int finish() {
  while (!pending.empty()) run(pending.rbegin()->first);
  return lost;
}
static int finish(Stream* s) { run(s->last); return lost; }

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
  static const std::map<int, int> known = {{13, 1980000}, {16, 33}, {36, 3201000}, {37, 6144}, {38, 1 << 16}, {75, 9}, {76, 0}};
  if (device || !known.count(kind)) return INVALID_VALUE;
  *value = known.at(kind);
  return SUCCESS;
}
API cuDevicePrimaryCtxRetain(void** context, int device) { if (owner != getpid()) return NOT_INITIALIZED; if (device) return INVALID_DEVICE; *context = &the_context; return SUCCESS; }
API cuCtxSetCurrent(void* context) { if (context && context != &the_context) return INVALID_CONTEXT; current = context; return lost; }
API cuCtxGetCurrent(void** context) { *context = current; return lost; }
API cuCtxPushCurrent(void* context) { if (context != &the_context) return INVALID_CONTEXT; below.push_back(current); current = context; return lost; }
API cuCtxPopCurrent(void** context) { if (!current || below.empty()) return INVALID_CONTEXT; *context = current; current = below.back(); below.pop_back(); return lost; }

API cuModuleLoadData(void** module, const void* code) {
  READY();
  SAFE();
  const unsigned char* p = (const unsigned char*)code;
  if (memcmp(p, "\177ELF\2", 5) || *(uint16_t*)(p + 18) != 190) return INVALID_IMAGE;
  uint64_t sections = *(uint64_t*)(p + 40) + (uint64_t) * (uint16_t*)(p + 58) * *(uint16_t*)(p + 60);
  if (!kernels) kernels = dlopen(getenv("FAKE_CUDA_KERNELS"), RTLD_NOW);
  Module* made = new Module{std::string((const char*)code, sections)};
  modules.insert(made);
  *module = made;
  return SUCCESS;
}
API cuModuleUnload(void* module) { READY(); SAFE(); if (!modules.erase((Module*)module)) return INVALID_HANDLE; ++unloaded; return SUCCESS; }
API fake_modules(int* loaded, int* gone) { Guard guard; *loaded = (int)modules.size(); *gone = unloaded; return SUCCESS; }
API cuModuleGetFunction(void** function, void* module, const char* name) {
  READY();
  if (!modules.count((Module*)module)) return INVALID_HANDLE;
  const std::string& image = ((Module*)module)->image;
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
API cuLaunchKernel(Function* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* handle, void** params, void** extra) {
  usleep(100);
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
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
  push(s, [=]() mutable {
    for (int i = 0; i < f->params[0]; ++i)
      if (f->params[1 + i] > 0 && !(values[2 * i + 1] = rest(values[2 * i]) / f->params[1 + i])) { lost = ILLEGAL_ADDRESS; return; }
    int grid[] = {(int)gx, (int)gy, (int)gz}, block[] = {(int)bx, (int)by, (int)bz};
    if (const char* message = f->entry(values.data(), grid, block, 1)) { fprintf(stderr, "%s\n", message); lost = ILLEGAL_ADDRESS; }
  });
  return SUCCESS;
}
API cuStreamSynchronize(void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (s->captured) { s->broken = true; return CAPTURE_UNSUPPORTED; }
  return finish(s);
}
API cuCtxSynchronize(void) { READY(); SAFE(); return finish(); }
API cuStreamCreate(Stream** s, unsigned flags) { READY(); if (flags > 1) return INVALID_VALUE; *s = new Stream; (*s)->blocking = !flags; streams.insert(*s); if (!flags) blocking_streams[*s] = -1; return SUCCESS; }
API cuStreamDestroy(Stream* s) { READY(); if (!streams.erase(s)) return INVALID_HANDLE; return SUCCESS; }
API cuStreamWaitEvent(void* handle, Event* e, unsigned) { READY(); Stream* s = stream_of(handle); if (!s || !events.count(e)) return INVALID_HANDLE; push(s, [] {}, e->work); return SUCCESS; }
API cuStreamBeginCapture(Stream* s, int mode) { READY(); if (!streams.count(s) || s->captured) return INVALID_VALUE; s->captured = new Graph; s->mode = mode; s->broken = false; return SUCCESS; }
API cuStreamEndCapture(Stream* s, Graph** g) { READY(); if (!streams.count(s) || !s->captured) return INVALID_VALUE; *g = s->captured; s->captured = nullptr; return s->broken ? CAPTURE_INVALIDATED : SUCCESS; }
API cuStreamIsCapturing(void* handle, int* status) { READY(); Stream* s = stream_of(handle); if (!s) return INVALID_HANDLE; *status = s->captured ? 1 : 0; return SUCCESS; }
API cuThreadExchangeStreamCaptureMode(int* mode) { std::swap(*mode, relaxed); return SUCCESS; }
API cuGraphInstantiate(Graph** made, Graph* g, uint64_t) { READY(); *made = new Graph(*g); return SUCCESS; }
API cuGraphInstantiateWithFlags(Graph** made, Graph* g, uint64_t) { READY(); *made = new Graph(*g); return SUCCESS; }
API cuGraphLaunch(Graph* g, void* handle) { READY(); Stream* s = stream_of(handle); if (!s) return INVALID_HANDLE; Graph all = *g; push(s, [=] { for (auto& w : all) if (!lost) w(); }); return SUCCESS; }
API cuGraphExecDestroy(Graph* g) { READY(); delete g; return SUCCESS; }
API cuGraphDestroy(Graph* g) { READY(); delete g; return SUCCESS; }

static uintptr_t allocated(size_t bytes) {
  uintptr_t p = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  memset((void*)p, 0xff, bytes);
  memory[p] = bytes;
  return p;
}
API cuMemAlloc(uintptr_t* p, size_t bytes) { READY(); SAFE(); if (!bytes) return INVALID_VALUE; *p = allocated(bytes); return SUCCESS; }
API cuMemFree(uintptr_t p) {
  READY();
  SAFE();
  if (int e = finish()) return e;
  if (!memory.erase(p)) return INVALID_VALUE;
  free((void*)p);
  return SUCCESS;
}
static std::map<uintptr_t, size_t> sizes;  // of allocations in the order of streams
API cuMemPoolCreate(void** pool, const void*) { READY(); *pool = &the_context; return SUCCESS; }
API fake_memory() { Guard guard; return (int)memory.size(); }
API cuMemPoolSetAttribute(void*, int, void*) { READY(); return SUCCESS; }
API cuMemAllocFromPoolAsync(uintptr_t* p, size_t bytes, void*, void* handle) {
  usleep(100);
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (!bytes) return INVALID_VALUE;
  auto& freed = s->freed;
  for (size_t n = 0; n < freed.size() && !s->captured; ++n)
    if (freed[n].second == bytes) {
      uintptr_t found = *p = freed[n].first;
      freed.erase(freed.begin() + n);
      push(s, [=] { memory[found] = bytes; memset((void*)found, 0xff, bytes); });
      return SUCCESS;
    }
  uintptr_t made = *p = allocated(bytes);
  memory.erase(made);
  sizes[made] = bytes;
  push(s, [=] { memory[made] = bytes; memset((void*)made, 0xff, bytes); });
  return SUCCESS;
}
API cuMemFreeAsync(uintptr_t p, void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (!sizes.count(p)) return INVALID_VALUE;
  if (!s->captured) s->freed.push_back({p, sizes[p]});
  push(s, [=] { memory.erase(p); });
  return SUCCESS;
}
// The copy waits in the legacy stream, which a stream that does not block does not wait for.
API cuMemcpyHtoD(uintptr_t to, const void* from, size_t bytes) {
  READY();
  SAFE();
  if (rest(to) < bytes) return INVALID_VALUE;
  std::string staged((const char*)from, bytes);
  push(&legacy, [=] { if (rest(to) < bytes) lost = ILLEGAL_ADDRESS; else memcpy((void*)to, staged.data(), bytes); });
  return SUCCESS;
}
API cuMemcpyHtoDAsync(uintptr_t to, const void* from, size_t bytes, void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  if (rest(to) < bytes) return INVALID_VALUE;
  std::string staged((const char*)from, bytes);
  push(s, [=] { if (rest(to) < bytes) lost = ILLEGAL_ADDRESS; else memcpy((void*)to, staged.data(), bytes); });
  return SUCCESS;
}
static int copy_back(void* to, uintptr_t from, size_t bytes, Stream* s) {
  if (rest(from) < bytes) return INVALID_VALUE;
  push(s, [=] { if (rest(from) < bytes) lost = ILLEGAL_ADDRESS; else memcpy(to, (void*)from, bytes); });
  return SUCCESS;
}
API cuMemcpyDtoH(void* to, uintptr_t from, size_t bytes) { READY(); SAFE(); if (int e = copy_back(to, from, bytes, &legacy)) return e; return finish(&legacy); }
API cuMemcpyDtoHAsync(void* to, uintptr_t from, size_t bytes, void* handle) { READY(); Stream* s = stream_of(handle); return s ? copy_back(to, from, bytes, s) : INVALID_HANDLE; }
API cuMemcpyDtoDAsync(uintptr_t to, uintptr_t from, size_t bytes, void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  push(s, [=] { if (rest(from) < bytes || rest(to) < bytes) lost = ILLEGAL_ADDRESS; else memcpy((void*)to, (void*)from, bytes); });
  return SUCCESS;
}
API cuMemsetD8Async(uintptr_t p, unsigned char value, size_t bytes, void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s) return INVALID_HANDLE;
  push(s, [=] { if (rest(p) < bytes) lost = ILLEGAL_ADDRESS; else memset((void*)p, value, bytes); });
  return SUCCESS;
}

API cuEventCreate(Event** e, unsigned flags) { READY(); if (flags) return INVALID_VALUE; events.insert(*e = new Event); return SUCCESS; }
API cuEventDestroy(Event* e) { READY(); if (!events.erase(e)) return INVALID_HANDLE; finish(); delete e; return SUCCESS; }
API cuEventRecord(Event* e, void* handle) {
  READY();
  Stream* s = stream_of(handle);
  if (!s || !events.count(e)) return INVALID_HANDLE;
  e->recorded = true;
  e->milliseconds = -1;
  e->work = push(s, [=] { e->milliseconds = now(); });
  return SUCCESS;
}
API cuEventSynchronize(Event* e) { READY(); if (!events.count(e)) return INVALID_HANDLE; run(e->work); return lost; }
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

/* A CUDA driver without a GPU: memory is the host's, copies happen at once, and kernels do nothing, except that
 * `choose` selects the first targets and `walk` writes empty paths.
 *
 * It is compiled against NVIDIA's cuda.h, which checks the prototypes.
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUcontext context = (CUcontext)16;
static _Thread_local CUcontext current;
static size_t used, addresses;
static struct { CUdeviceptr address; size_t size; } blocks[4096];

#define TOTAL ((size_t)1 << 30)
/* targets that `choose` selects */
#define TARGETS 3

/* every function but those that start the driver needs a context, as on a GPU */
#define NEED_CONTEXT if (current != context) return CUDA_ERROR_INVALID_CONTEXT

CUresult cuInit(unsigned int flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) {
    if (number) return CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, length, "NVIDIA H200");
    return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *result, CUdevice device) {
    *result = context;
    return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext chosen) { current = chosen; return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { NEED_CONTEXT; *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { NEED_CONTEXT; return CUDA_SUCCESS; }
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    NEED_CONTEXT;
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    NEED_CONTEXT;
    *free_bytes = TOTAL - used;
    *total_bytes = TOTAL;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
    NEED_CONTEXT;
    if (!size) return CUDA_ERROR_INVALID_VALUE;
    if (size > TOTAL - used || addresses == 4096) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)calloc(1, size);
    used += size;
    blocks[addresses].address = *address;
    blocks[addresses++].size = size;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
    NEED_CONTEXT;
    for (size_t k = 0; k < addresses; k++) {
        if (blocks[k].address == address) {
            used -= blocks[k].size;
            blocks[k] = blocks[--addresses];
            free((void *)address);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* whether a range lies within an allocated block */
static int allocated(CUdeviceptr address, size_t size) {
    for (size_t k = 0; k < addresses; k++)
        if (blocks[k].address <= address && address + size <= blocks[k].address + blocks[k].size) return 1;
    return 0;
}
static CUresult copy(void *to, const void *from, size_t size, CUdeviceptr on_device) {
    NEED_CONTEXT;
    if (!allocated(on_device, size)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, from, size);
    return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    return copy((void *)to, from, size, to);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size) {
    return copy(to, (const void *)from, size, from);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    return stream ? copy((void *)to, from, size, to) : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    return stream ? copy(to, (const void *)from, size, from) : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuMemHostAlloc(void **address, size_t size, unsigned int flags) {
    NEED_CONTEXT;
    *address = calloc(1, size);
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *address) { NEED_CONTEXT; free(address); return CUDA_SUCCESS; }

static size_t handles = 32;
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    NEED_CONTEXT;
    if (flags > CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5) return CUDA_ERROR_INVALID_VALUE;
    *stream = (CUstream)++handles;
    return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) { NEED_CONTEXT; return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    NEED_CONTEXT;
    return event && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    NEED_CONTEXT;
    *event = (CUevent)++handles;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
    NEED_CONTEXT;
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventSynchronize(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }
/* the symbol without a version, which cuda.h renames */
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    *milliseconds = 1.5f;
    return start && end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventDestroy(CUevent event) { return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                           unsigned int library_count) {
    if (strncmp(code, "code", 4) || count || library_count) return CUDA_ERROR_INVALID_IMAGE;
    *library = (CUlibrary)++handles;
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    *kernel = (CUkernel)strdup(name);
    return library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    *function = (CUfunction)kernel;
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    if (device || !kernel || value < 0) return CUDA_ERROR_INVALID_VALUE;
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                   attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
    *value = 0;
    return attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES && kernel && !device ? CUDA_SUCCESS
                                                                                : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction kernel, int threads, size_t bytes) {
    NEED_CONTEXT;
    *count = 2;
    return kernel && threads && bytes < 232449 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLaunchKernel(CUfunction kernel, unsigned int x, unsigned int y, unsigned int z, unsigned int threads,
                        unsigned int threads_y, unsigned int threads_z, unsigned int bytes, CUstream stream,
                        void **arguments, void **extra) {
    NEED_CONTEXT;
    if (!x || y != 1 || z != 1 || !threads || threads > 1024 || threads_y != 1 || threads_z != 1 || extra)
        return CUDA_ERROR_INVALID_VALUE;
    /* an array is seven words: two null pointers, elements, bytes of one, address, shape and stride */
    if (strcmp((const char *)kernel, "walk") == 0) {
        /* nine arrays, three integers, two arrays, paths */
        memset(*(void **)arguments[84], 0, 4 * *(size_t *)arguments[82]);
    }
    if (strcmp((const char *)kernel, "choose") == 0) {
        /* matrices of nine words: targets, scores; the array of lengths; the matrix longest; first; the matrix
           rows; first_row, min_score, top_k, target_bits; the matrices state, output_rows */
        long top_k = *(long *)arguments[46], width = *(long *)arguments[63];
        int count = top_k < TARGETS ? (int)top_k : TARGETS;
        for (unsigned int query = 0; query < x; query++) {
            int *row = *(int **)arguments[61] + (*(long *)arguments[44] + query) * width;
            row[2] = count;
            for (int k = 0; k < count; k++) {
                row[3 + k] = k;
                row[3 + top_k + k] = 100;
            }
        }
    }
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **name) {
    switch (error) {
        case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
        case CUDA_ERROR_INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
        case CUDA_ERROR_INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
        case CUDA_ERROR_INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; break;
        case CUDA_ERROR_INVALID_IMAGE: *name = "CUDA_ERROR_INVALID_IMAGE"; break;
        default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

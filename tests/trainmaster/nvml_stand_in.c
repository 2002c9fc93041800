/* Speaks the ABI of libnvidia-ml.so.1 for tests: two GPUs, whose numbers are lines `<gpu> <name> <number>` of the file
 * that NVML_STAND_IN names. A number below 0 is an error of that number; what the file does not have is not supported.
 * `<gpu> hangs 1` lets each call about the GPU hang, and `<gpu> lost 1` says that the GPU is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
#ifndef GPUS
#define GPUS 2
#endif
typedef void *Device;

static int number_of(int gpu, const char *wanted, long long *number)
{
    char name[64];
    int at, found = 0;
    long long value;
    FILE *file = fopen(getenv("NVML_STAND_IN"), "r");
    if (file == NULL) return 0;
    while (fscanf(file, "%d %63s %lld", &at, name, &value) == 3)
        if (at == gpu && strcmp(name, wanted) == 0) { *number = value; found = 1; }
    fclose(file);
    return found;
}

static int index_of(Device device) { return (int)(long)device - 1; }

static int state_of(int gpu)
{
    long long yes = 0;
    if (number_of(gpu, "hangs", &yes) && yes) for (;;) pause();
    return number_of(gpu, "lost", &yes) && yes ? LOST : OK;
}

static int ask(Device device, const char *name, long long *number)
{
    int state = state_of(index_of(device));
    if (state != OK) return state;
    if (!number_of(index_of(device), name, number)) return UNSUPPORTED;
    return *number < 0 ? (int)-*number : OK;
}

static int ask_uint(Device device, const char *name, unsigned *number)
{
    long long value;
    int code = ask(device, name, &value);
    if (code == OK) *number = (unsigned)value;
    return code;
}

int nvmlInitWithFlags(unsigned flags) { return flags == 0 ? OK : INVALID; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : "an error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "999.1"); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device)
{
    if (index >= GPUS) return INVALID;
    *device = (Device)(long)(index + 1);
    return state_of((int)index);
}

/* A lost GPU does not tell its UUID any more. */
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    int gpu;
    if (sscanf(uuid, "GPU-%d", &gpu) != 1 || gpu < 0 || gpu >= GPUS) return NOT_FOUND;
    *device = (Device)(long)(gpu + 1);
    return state_of(gpu) == LOST ? NOT_FOUND : OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device *device)
{
    unsigned domain, bus;
    if (sscanf(address, "%x:%x:00.0", &domain, &bus) != 2 || bus < 1 || bus > GPUS) return NOT_FOUND;
    *device = (Device)(long)bus;
    return state_of((int)bus - 1);
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned length)
{
    snprintf(text, length, "GPU-%d", index_of(device));
    return state_of(index_of(device));
}

int nvmlDeviceGetName(Device device, char *text, unsigned length)
{
    snprintf(text, length, "Stand-in");
    return state_of(index_of(device));
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };

int nvmlDeviceGetPciInfo_v3(Device device, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)index_of(device) + 1;
    snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", pci->bus);
    return state_of(index_of(device));
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(Device device, struct memory *memory)
{
    long long total = 0, used = 0;
    int code = ask(device, "memory_total", &total);
    if (code == OK) code = ask(device, "memory_used", &used);
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)used;
    memory->free = memory->total - memory->used;
    return code;
}

int nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long *count)
{
    long long value = 0;
    int code;
    if (type != 1) return INVALID;
    code = ask(device, counter == 0 ? "ecc_volatile" : "ecc_aggregate", &value);
    *count = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *others, unsigned *pending, unsigned *failed)
{
    int code = ask_uint(device, "rows_corrected", corrected);
    if (code == OK) code = ask_uint(device, "rows_uncorrected", others);
    if (code == OK) code = ask_uint(device, "rows_pending", pending);
    if (code == OK) code = ask_uint(device, "rows_failed", failed);
    return code;
}

int nvmlDeviceGetRetiredPages(Device device, int cause, unsigned *count, unsigned long long *addresses)
{
    unsigned pages, each;
    int code = ask_uint(device, cause == 0 ? "pages_single" : "pages_double", &pages);
    if (code != OK) return code;
    if (addresses == NULL || *count < pages) { *count = pages; return pages ? TOO_SMALL : OK; }
    for (each = 0; each < pages; each++) addresses[each] = 4096ull * each;
    *count = pages;
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Device device, int *pending)
{
    return ask_uint(device, "pages_pending", (unsigned *)pending);
}

static int reasons_of(Device device, const char *name, unsigned long long *reasons)
{
    long long value = 0;
    int code = ask(device, name, &value);
    *reasons = (unsigned long long)value;
    return code;
}

#ifdef OLD_DRIVER /* before 535 the function has another name */
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *reasons)
#else
int nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long *reasons)
#endif
{
    return reasons_of(device, "throttle", reasons);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *width) { return ask_uint(device, "width", width); }
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *width) { return ask_uint(device, "width_most", width); }
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *it) { return ask_uint(device, "generation", it); }
int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned *it) { return ask_uint(device, "generation_most", it); }
int nvmlDeviceGetPerformanceState(Device device, int *it) { return ask_uint(device, "pstate", (unsigned *)it); }

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(Device device, struct utilization *used)
{
    used->memory = 0;
    return ask_uint(device, "busy", &used->gpu);
}

struct process { unsigned pid; unsigned long long memory; unsigned instance, part; };

static int processes_of(Device device, const char *name, unsigned *count, struct process *processes)
{
    unsigned number, each;
    int code = ask_uint(device, name, &number);
    if (code != OK) return code;
    if (number > 0 && (processes == NULL || *count < number)) { *count = number; return TOO_SMALL; }
    for (each = 0; each < number; each++) processes[each] = (struct process){ 1 + each, 1 << 20, 0, 0 };
    *count = number;
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, struct process *processes)
{
    return processes_of(device, "processes", count, processes);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, struct process *processes)
{
    return processes_of(device, "graphics", count, processes);
}

int nvmlDeviceGetMigMode(Device device, unsigned *now, unsigned *next)
{
    int code = ask_uint(device, "mig", now);
    if (code == OK) *next = *now;
    return code;
}

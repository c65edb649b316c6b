"""What each kind of allocation counts on the card, by the stand-in's own books and by cuMemGetInfo."""

from __future__ import annotations

import pytest

MIB = 2**20
GIB = 2**30


def test_a_card_gives_its_memory_less_the_context_and_no_more(standin):
    machine = standin("1x16GiB")
    out = machine.run("""
begin()
assert ok(cuda.cuMemGetInfo()) == (16 * GIB - 256 * MIB, 16 * GIB)
assert ok(cuda.cuDeviceTotalMem(0)) == 16 * GIB
pointer = ok(cuda.cuMemAlloc(16 * GIB - 256 * MIB))
assert free() == 0
print(cuda.cuMemAlloc(1)[0].name, cuda.cuMemAlloc(2 * MIB)[0].name, cuda.cuMemAlloc(2**62)[0].name)
ok(cuda.cuMemFree(pointer))
assert free() == 16 * GIB - 256 * MIB
ok(cuda.cuMemAlloc(2 * MIB))
""")
    assert out.split() == ["CUDA_ERROR_OUT_OF_MEMORY"] * 3
    assert machine.used() == 0
    assert machine.cards.cards()[0].peak == 16 * GIB


def test_the_driver_keeps_its_reserve(standin):
    machine = standin("1xT4")
    capacity = machine.cards.cards()[0].capacity
    assert capacity == (15360 - 430) * MIB
    assert machine.run("begin(); print(ok(cuda.cuMemGetInfo())[1])").strip() == str(capacity)


def test_large_ones_are_rounded_up_and_small_ones_are_packed(standin):
    standin().run("""
begin()
start = free()
def taken(): return (start - free()) / (2 * MIB)
one = ok(cuda.cuMemAlloc(MIB)); assert taken() == 1
two = ok(cuda.cuMemAlloc(2 * MIB + 1)); assert taken() == 3
ok(cuda.cuMemFree(one)); ok(cuda.cuMemFree(two)); assert taken() == 0
small = [ok(cuda.cuMemAlloc(1)) for _ in range(4096)]; assert taken() == 1
more = ok(cuda.cuMemAlloc(1)); assert taken() == 2
ok(cuda.cuMemFree(more)); assert taken() == 1
assert len({int(p) for p in small}) == 4096
for pointer in small: ok(cuda.cuMemFree(pointer))
assert taken() == 0
assert cuda.cuMemFree(small[0])[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
assert cuda.cuMemAlloc(0)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
ok(cuda.cuMemFree(0))
""")


def test_pitched_managed_and_array_memory_counts_and_host_memory_does_not(standin):
    standin().run("""
begin()
start = free()
def taken(): return (start - free()) // MIB
pointer, pitch = ok(cuda.cuMemAllocPitch(1000, 4096, 4))
assert pitch == 1024 and taken() == 4
ok(cuda.cuMemFree(pointer)); assert taken() == 0
managed = ok(cuda.cuMemAllocManaged(10 * MIB, 1)); assert taken() == 10
ok(cuda.cuMemFree(managed))
host = ok(cuda.cuMemAllocHost(10 * MIB)); other = ok(cuda.cuMemHostAlloc(10 * MIB, 0)); assert taken() == 0
ok(cuda.cuMemFreeHost(host)); ok(cuda.cuMemFreeHost(other))

flat = cuda.CUDA_ARRAY_DESCRIPTOR()
flat.Width, flat.Height, flat.NumChannels = 1024, 1024, 4
flat.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
array = ok(cuda.cuArrayCreate(flat)); assert taken() == 16
ok(cuda.cuArrayDestroy(array)); assert taken() == 0

deep = cuda.CUDA_ARRAY3D_DESCRIPTOR()
deep.Width, deep.Height, deep.Depth, deep.NumChannels = 256, 256, 64, 1
deep.Format = cuda.CUarray_format.CU_AD_FORMAT_FLOAT
array = ok(cuda.cuArray3DCreate(deep)); assert taken() == 16
ok(cuda.cuArrayDestroy(array))
mipmap = ok(cuda.cuMipmappedArrayCreate(deep, 3)); assert taken() == 20, taken()
level = ok(cuda.cuMipmappedArrayGetLevel(mipmap, 1))
assert ok(cuda.cuArray3DGetDescriptor(level)).Width == 128
ok(cuda.cuMipmappedArrayDestroy(mipmap)); assert taken() == 0
""")


def test_every_context_costs_and_takes_its_memory_with_it(standin):
    standin("1x16GiB", context_bytes=300 * MIB).run("""
begin()
full = ok(cuda.cuMemGetInfo())[1]
assert full - free() == 300 * MIB
second = ok(cuda.cuCtxCreate(None, 0, 0))
assert full - free() == 600 * MIB
ok(cuda.cuMemAlloc(GIB))
assert full - free() == 600 * MIB + GIB
ok(cuda.cuCtxDestroy(second))
assert full - free() == 300 * MIB
ok(cuda.cuMemAlloc(GIB)); ok(cuda.cuMemAllocAsync(GIB, 0))
ok(cuda.cuDevicePrimaryCtxReset(0))
assert cuda.cuMemGetInfo()[0] == cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED
ok(cuda.cuCtxPushCurrent(ok(cuda.cuDevicePrimaryCtxRetain(0))))
assert full - free() == 300 * MIB
ok(cuda.cuMemAlloc(full - 300 * MIB))
assert cuda.cuCtxCreate(None, 0, 0)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
""")


def test_pools_reserve_in_steps_and_let_go_when_the_program_synchronises(standin):
    standin().run("""
begin()
start = free()
pool = ok(cuda.cuDeviceGetDefaultMemPool(0))
A = cuda.CUmemPool_attribute
def figure(name): return int(ok(cuda.cuMemPoolGetAttribute(pool, getattr(A, f"CU_MEMPOOL_ATTR_{name}"))))
def taken(): return (start - free()) // MIB
one = ok(cuda.cuMemAllocAsync(1000, 0))
assert taken() == 32 and figure("RESERVED_MEM_CURRENT") == 32 * MIB and figure("USED_MEM_CURRENT") == 1024
two = ok(cuda.cuMemAllocAsync(40 * MIB, 0)); assert taken() == 64
ok(cuda.cuMemFreeAsync(two, 0)); assert taken() == 64
ok(cuda.cuStreamSynchronize(0)); assert taken() == 32
ok(cuda.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.cuuint64_t(100 * MIB)))
ok(cuda.cuMemFreeAsync(ok(cuda.cuMemAllocAsync(500 * MIB, 0)), 0))
ok(cuda.cuCtxSynchronize()); assert taken() == 96, taken()
assert figure("RESERVED_MEM_HIGH") == 512 * MIB and figure("USED_MEM_HIGH") == 500 * MIB + 1024
ok(cuda.cuMemPoolTrimTo(pool, 33 * MIB)); assert taken() == 64
ok(cuda.cuMemFree(one)); ok(cuda.cuMemPoolTrimTo(pool, 0)); assert taken() == 0

props = cuda.CUmemPoolProps()
props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
own = ok(cuda.cuMemPoolCreate(props))
three = ok(cuda.cuMemAllocFromPoolAsync(MIB, own, 0)); assert taken() == 32
ok(cuda.cuMemPoolDestroy(own)); assert taken() == 32
ok(cuda.cuMemFreeAsync(three, 0)); assert taken() == 0

# what a pool holds for nothing does not stand in the way of another allocation
ok(cuda.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cuda.cuuint64_t(2**63)))
ok(cuda.cuMemFreeAsync(ok(cuda.cuMemAllocAsync(10 * GIB, 0)), 0)); ok(cuda.cuCtxSynchronize())
assert taken() == 10 * 1024
ok(cuda.cuMemAlloc(15 * GIB))
assert cuda.cuMemAllocAsync(GIB, 0)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
""")


def test_created_memory_lives_until_it_is_released_and_unmapped(standin):
    standin().run("""
begin()
start = free()
def taken(): return (start - free()) // MIB
prop = cuda.CUmemAllocationProp()
prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
step = ok(cuda.cuMemGetAllocationGranularity(prop, cuda.CUmemAllocationGranularity_flags(0)))
assert step == 2 * MIB
assert cuda.cuMemCreate(step + 1, prop, 0)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
address = ok(cuda.cuMemAddressReserve(64 * MIB, 0, 0, 0)); assert taken() == 0
memory = ok(cuda.cuMemCreate(32 * MIB, prop, 0)); assert taken() == 32
ok(cuda.cuMemMap(address, 32 * MIB, 0, memory, 0))
ok(cuda.cuMemMap(int(address) + 32 * MIB, 32 * MIB, 0, memory, 0)); assert taken() == 32
access = cuda.CUmemAccessDesc()
access.location = prop.location
access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
ok(cuda.cuMemSetAccess(address, 64 * MIB, [access], 1))
ok(cuda.cuMemcpyHtoD(address, b"shared", 6))
back = bytearray(6)
ok(cuda.cuMemcpyDtoH(back, int(address) + 32 * MIB, 6)); assert back == b"shared"
again = ok(cuda.cuMemRetainAllocationHandle(int(address)))
ok(cuda.cuMemRelease(memory)); ok(cuda.cuMemRelease(again)); assert taken() == 32
ok(cuda.cuMemUnmap(address, 32 * MIB)); assert taken() == 32
assert cuda.cuMemAddressFree(address, 64 * MIB)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
ok(cuda.cuMemUnmap(int(address) + 32 * MIB, 32 * MIB)); assert taken() == 0
ok(cuda.cuMemAddressFree(address, 64 * MIB))

memory = ok(cuda.cuMemCreate(32 * MIB, prop, 0))
kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
descriptor = ok(cuda.cuMemExportToShareableHandle(memory, kind, 0))
imported = ok(cuda.cuMemImportFromShareableHandle(int(descriptor), kind)); assert taken() == 32
ok(cuda.cuMemRelease(imported)); assert taken() == 32
ok(cuda.cuMemRelease(memory)); assert taken() == 0
assert cuda.cuMemCreate(17 * GIB - GIB % step, prop, 0)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
""")


def test_graphs_take_memory_when_they_run_and_keep_it_until_it_is_trimmed(standin):
    standin().run("""
begin()
start = free()
def taken(): return (start - free()) // MIB
A = cuda.CUgraphMem_attribute
def figure(name): return int(ok(cuda.cuDeviceGetGraphMemAttribute(0, getattr(A, f"CU_GRAPH_MEM_ATTR_{name}"))))
params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
params.poolProps.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
params.poolProps.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
params.bytesize = 100 * MIB
graph = ok(cuda.cuGraphCreate(0))
node = ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, params))
middle = ok(cuda.cuGraphAddEmptyNode(graph, [node], 1))
ok(cuda.cuGraphAddMemFreeNode(graph, [middle], 1, params.dptr))
nodes = ok(cuda.cuGraphGetNodes(graph, 3))[0]
assert [int(ok(cuda.cuGraphNodeGetType(n))) for n in nodes] == [10, 5, 11]
assert ok(cuda.cuGraphMemAllocNodeGetParams(node)).bytesize == 100 * MIB
run = ok(cuda.cuGraphInstantiate(graph, 0)); assert taken() == 0
ok(cuda.cuGraphLaunch(run, 0)); assert taken() == 100
assert figure("RESERVED_MEM_CURRENT") == 100 * MIB and figure("USED_MEM_CURRENT") == 0
ok(cuda.cuGraphLaunch(run, 0)); ok(cuda.cuCtxSynchronize()); assert taken() == 100
ok(cuda.cuGraphExecDestroy(run)); ok(cuda.cuGraphDestroy(graph)); assert taken() == 100
ok(cuda.cuDeviceGraphMemTrim(0)); assert taken() == 0

# an allocation that the graph does not free stays until the program frees it
graph = ok(cuda.cuGraphCreate(0))
ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, params))
run = ok(cuda.cuGraphInstantiate(graph, 0))
assert cuda.cuMemFree(params.dptr)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
ok(cuda.cuGraphUpload(run, 0)); assert taken() == 100 and figure("USED_MEM_CURRENT") == 0
ok(cuda.cuGraphLaunch(run, 0)); ok(cuda.cuDeviceGraphMemTrim(0)); assert taken() == 100
assert cuda.cuGraphLaunch(run, 0)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
ok(cuda.cuMemFree(params.dptr)); ok(cuda.cuGraphLaunch(run, 0)); ok(cuda.cuMemFreeAsync(params.dptr, 0))
ok(cuda.cuDeviceGraphMemTrim(0)); assert taken() == 0

# captured allocations are the same
stream = ok(cuda.cuStreamCreate(0))
ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(0)))
pointer = ok(cuda.cuMemAllocAsync(50 * MIB, stream)); ok(cuda.cuMemFreeAsync(pointer, stream))
graph = ok(cuda.cuStreamEndCapture(stream)); assert taken() == 0
run = ok(cuda.cuGraphInstantiate(graph, 0)); ok(cuda.cuGraphLaunch(run, stream)); assert taken() == 50

params.bytesize = 15 * GIB
graph = ok(cuda.cuGraphCreate(0))
ok(cuda.cuGraphAddMemAllocNode(graph, None, 0, params))
ok(cuda.cuMemAlloc(2 * GIB))
run = ok(cuda.cuGraphInstantiate(graph, 0))
assert cuda.cuGraphLaunch(run, 0)[0] == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
""")


def test_data_goes_to_the_card_and_comes_back(standin):
    standin().run("""
begin()
data = os.urandom(3 * MIB)
one, two = ok(cuda.cuMemAlloc(len(data))), ok(cuda.cuMemAllocAsync(len(data), 0))
ok(cuda.cuMemcpyHtoD(one, data, len(data)))
ok(cuda.cuMemcpyDtoDAsync(two, one, len(data), 0))
back = bytearray(len(data))
ok(cuda.cuMemcpyDtoHAsync(back, two, len(data), 0)); ok(cuda.cuStreamSynchronize(0))
assert back == data
ok(cuda.cuMemsetD32(one, 0x01020304, 4)); ok(cuda.cuMemsetD8(int(one) + 16, 9, 2))
ok(cuda.cuMemcpyDtoH(back, one, 18)); assert back[:18] == bytes([4, 3, 2, 1] * 4 + [9, 9])
assert cuda.cuMemcpyHtoD(int(one) + 1, data, len(data))[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
assert cuda.cuMemcpyHtoD(12345, data, 1)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE

base, size = ok(cuda.cuMemGetAddressRange(int(one) + 77)); assert (int(base), size) == (int(one), len(data))
P = cuda.CUpointer_attribute
assert int(ok(cuda.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, one))) == 2
assert ok(cuda.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, one)) == 0
assert cuda.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345)[0] == 1

flat = cuda.CUDA_ARRAY_DESCRIPTOR()
flat.Width, flat.Height, flat.NumChannels = 100, 10, 1
flat.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
array = ok(cuda.cuArrayCreate(flat))
pitched, pitch = ok(cuda.cuMemAllocPitch(100, 10, 4))
rows = cuda.CUDA_MEMCPY2D()
rows.srcMemoryType, rows.srcHost, rows.srcPitch = cuda.CUmemorytype(1), data, 100
rows.dstMemoryType, rows.dstDevice, rows.dstPitch = cuda.CUmemorytype(2), pitched, pitch
rows.WidthInBytes, rows.Height = 100, 10
ok(cuda.cuMemcpy2D(rows))
rows = cuda.CUDA_MEMCPY2D()
rows.srcMemoryType, rows.srcDevice, rows.srcPitch = cuda.CUmemorytype(2), pitched, pitch
rows.dstMemoryType, rows.dstArray = cuda.CUmemorytype(3), array
rows.WidthInBytes, rows.Height = 100, 10
ok(cuda.cuMemcpy2D(rows))
back = bytearray(1000)
ok(cuda.cuMemcpyAtoH(back, array, 0, 1000)); assert back == data[:1000]
""")


def test_memory_that_is_not_touched_costs_the_host_nothing(standin):
    out = standin().run("""
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
begin()
before = resident()
pointer = ok(cuda.cuMemAlloc(14 * GIB))
assert resident() - before < 4 * MIB
ok(cuda.cuMemsetD8(pointer, 1, 64 * MIB)); assert resident() - before > 60 * MIB
ok(cuda.cuMemFree(pointer)); assert resident() - before < 8 * MIB
print("done")
""")
    assert out == "done\n"


@pytest.mark.parametrize(
    "call", ["cuMemAlloc(5)", "cuMemGetInfo()", "cuCtxGetDevice()", "cuDeviceGetCount()"]
)
def test_nothing_works_before_cuinit(standin, call):
    assert standin().run(f"print(cuda.{call}[0].name)") == "CUDA_ERROR_NOT_INITIALIZED\n"

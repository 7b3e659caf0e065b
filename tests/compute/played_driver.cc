// A libcuda.so.1 for a program that lets cuDNN plan for a GPU that is only described: cuDNN compiles kernels with
// NVRTC and gives them to the driver, which takes them here and does nothing. Other functions refuse.
//
// The names are those that cuDNN looks for; it wants all of them to be there. Arguments that are not read are left out.
namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 801;
int kept = 0;  // what handles point to

int Give(void** handle) {
  *handle = &kept;
  return kSuccess;
}

}  // namespace

extern "C" {

int cuLibraryLoadData(void** library) { return Give(library); }
int cuLibraryGetKernel(void** kernel) { return Give(kernel); }
int cuLibraryUnload(void*) { return kSuccess; }
int cuKernelSetAttribute() { return kSuccess; }

#define PENSTOCK_REFUSED(name) \
  int name() { return kNotSupported; }
PENSTOCK_REFUSED(cuCtxGetCurrent)
PENSTOCK_REFUSED(cuCtxGetDevice)
PENSTOCK_REFUSED(cuCtxGetLimit)
PENSTOCK_REFUSED(cuCtxPopCurrent)
PENSTOCK_REFUSED(cuCtxPushCurrent)
PENSTOCK_REFUSED(cuDeviceGet)
PENSTOCK_REFUSED(cuDeviceGetAttribute)
PENSTOCK_REFUSED(cuDeviceGetCount)
PENSTOCK_REFUSED(cuDevicePrimaryCtxRelease)
PENSTOCK_REFUSED(cuDevicePrimaryCtxReset)
PENSTOCK_REFUSED(cuDevicePrimaryCtxRetain)
PENSTOCK_REFUSED(cuDriverGetVersion)
PENSTOCK_REFUSED(cuFuncGetAttribute)
PENSTOCK_REFUSED(cuFuncSetAttribute)
PENSTOCK_REFUSED(cuGetErrorName)
PENSTOCK_REFUSED(cuGetErrorString)
PENSTOCK_REFUSED(cuInit)
PENSTOCK_REFUSED(cuKernelGetAttribute)
PENSTOCK_REFUSED(cuLaunchCooperativeKernel)
PENSTOCK_REFUSED(cuLaunchKernel)
PENSTOCK_REFUSED(cuLaunchKernelEx)
PENSTOCK_REFUSED(cuLibraryLoadFromFile)
PENSTOCK_REFUSED(cuLinkAddData)
PENSTOCK_REFUSED(cuLinkAddData_v2)
PENSTOCK_REFUSED(cuLinkAddFile_v2)
PENSTOCK_REFUSED(cuLinkComplete)
PENSTOCK_REFUSED(cuLinkCreate)
PENSTOCK_REFUSED(cuLinkCreate_v2)
PENSTOCK_REFUSED(cuLinkDestroy)
PENSTOCK_REFUSED(cuMemcpyDtoH_v2)
PENSTOCK_REFUSED(cuModuleGetFunction)
PENSTOCK_REFUSED(cuModuleGetGlobal_v2)
PENSTOCK_REFUSED(cuModuleLoadData)
PENSTOCK_REFUSED(cuModuleLoadDataEx)
PENSTOCK_REFUSED(cuModuleLoadFatBinary)
PENSTOCK_REFUSED(cuModuleUnload)
PENSTOCK_REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
PENSTOCK_REFUSED(cuOccupancyMaxPotentialClusterSize)
PENSTOCK_REFUSED(cuStreamGetCtx)
PENSTOCK_REFUSED(cuStreamSynchronize)
PENSTOCK_REFUSED(cuTensorMapEncodeTiled)
#undef PENSTOCK_REFUSED

}  // extern "C"

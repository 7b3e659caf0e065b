// A libcuda.so.1 of a machine with three GPUs, of compute capabilities 9.0, 7.5 and 8.6.
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMajors[] = {9, 7, 8};
constexpr int kFirstHandle = 40;

}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDeviceGetCount(int* count) {
  *count = 3;
  return kSuccess;
}
int cuDeviceGet(int* device, int number) {
  *device = kFirstHandle + number;
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != kCapabilityMajor) return kInvalidValue;
  *value = kMajors[device - kFirstHandle];
  return kSuccess;
}

}  // extern "C"

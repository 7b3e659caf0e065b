#include "services/rpc/host_name.h"

#include <unistd.h>

namespace penstock {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

}  // namespace penstock

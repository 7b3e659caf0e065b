// The name of this machine, as a part of names that tell processes of several machines apart.
#pragma once

#include <string>

namespace penstock {

// "localhost" if the machine has none.
std::string HostName();

}  // namespace penstock

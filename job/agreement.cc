#include "job/agreement.h"

#include "absl/strings/str_cat.h"

namespace penstock {

std::string AgreementOf(const ResolvedJob& job) {
  return absl::StrCat("rounding ", static_cast<int>(job.rounding), "\n",  //
                      "stash ", static_cast<int>(job.stash), "\n",        //
                      "repeatability ", static_cast<int>(job.repeatability), "\n", "device_graphs ",
                      job.device_graphs ? 1 : 0, "\n");
}

}  // namespace penstock

#include "studies/experiments/published_pipedream.h"

namespace penstock {
namespace {

constexpr char kTable2018[] = "arXiv 1806.03377, table 1";
constexpr char kText2018[] = "arXiv 1806.03377, section 5.2";
constexpr char kTable2019[] = "SOSP'19, table 1";
constexpr char kA2018[] = "A, Titan X";
constexpr char kB2018[] = "B, V100";
constexpr char kA2019[] = "A, 4 hosts of 4 V100";
constexpr char kB2019[] = "B, 2 hosts of 8 V100";
constexpr std::nullopt_t kNotSaid = std::nullopt;

constexpr PublishedSpeed kSpeeds[] = {
    {kTable2018, kA2018, "vgg16", 4, 25, 32, "2-1-1", 1.47, 3.14, 2.13, 0.90},
    {kTable2018, kA2018, "vgg16", 8, 25, 32, "7-1", 2.35, 7.04, 2.99, 0.95},
    {kTable2018, kA2018, "vgg16", 16, 25, 32, "9-5-1-1", 3.28, 9.86, 3.00, 0.91},
    {kTable2018, kB2018, "vgg16", 8, 10, 32, "7-1", 1.36, 6.98, 5.12, 0.95},
    {kText2018, kB2018, "alexnet", 8, 10, kNotSaid, "", kNotSaid, kNotSaid, 6.76, kNotSaid},
    {kText2018, kB2018, "resnet50", 8, 10, kNotSaid, "", kNotSaid, kNotSaid, 1.21, kNotSaid},
    {kTable2019, kA2019, "vgg16", 16, 10, 64, "15-1", kNotSaid, kNotSaid, 5.28, kNotSaid},
    {kTable2019, kB2019, "vgg16", 16, 25, 64, "15-1", kNotSaid, kNotSaid, 2.98, kNotSaid},
    {kTable2019, kA2019, "resnet50", 16, 10, 128, "16", kNotSaid, kNotSaid, 1.00, kNotSaid},
    {kTable2019, kB2019, "resnet50", 16, 25, 128, "16", kNotSaid, kNotSaid, 1.00, kNotSaid},
    {kTable2019, kA2019, "alexnet", 16, 10, 256, "15-1", kNotSaid, kNotSaid, 4.92, kNotSaid},
    {kTable2019, kB2019, "alexnet", 16, 25, 256, "", kNotSaid, kNotSaid, 2.04, kNotSaid},
    {kTable2019, kA2019, "gnmt_large", 16, 10, 64, "", kNotSaid, kNotSaid, 2.92, kNotSaid},
    {kTable2019, kB2019, "gnmt_large", 16, 25, 64, "", kNotSaid, kNotSaid, 3.14, kNotSaid},
};

}  // namespace

absl::Span<const PublishedSpeed> PublishedSpeeds() { return kSpeeds; }

}  // namespace penstock

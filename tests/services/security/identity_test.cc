// Identities as certificates carry them.
#include "services/security/identity.h"

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;

TEST(Identity, UriOfEveryRole_IsReadBack) {
  for (const Role role : AllRoles()) {
    for (const char* name : {"", "gpu-1", "A.b_C-9"}) {
      const Identity identity = {"cluster-2.example.org", role, name};
      EXPECT_THAT(ParseIdentity(identity.ToUri()), IsOkAndHolds(identity));
    }
  }
  EXPECT_EQ((Identity{"penstock", Role::kWorker, "w1"}.ToUri()), "spiffe://penstock/worker/w1");
}

TEST(Identity, AnythingElse_IsRefused) {
  const std::string long_name(65, 'a');
  for (const std::string& uri :
       {std::string(""), std::string("spiffe://"), std::string("spiffe://penstock"),
        std::string("spiffe://penstock/"), std::string("spiffe:///worker"),
        std::string("spiffe://penstock/root"), std::string("spiffe://penstock/Worker"),
        std::string("spiffe://penstock/worker/"), std::string("spiffe://penstock/worker/a/b"),
        std::string("spiffe://penstock/worker/.."), std::string("spiffe://penstock/worker/a%2fb"),
        std::string("spiffe://penstock/worker/a b"), std::string("spiffe://Penstock/worker"),
        std::string("spiffe://pen_stock/worker"), std::string("https://penstock/worker"),
        std::string("spiffe://penstock/worker?x"), std::string("spiffe://penstock/worker\0", 25),
        "spiffe://penstock/worker/" + long_name, "spiffe://" + long_name + "/worker"}) {
    EXPECT_THAT(ParseIdentity(uri), StatusIs(absl::StatusCode::kInvalidArgument, _)) << uri;
  }
}

}  // namespace
}  // namespace penstock

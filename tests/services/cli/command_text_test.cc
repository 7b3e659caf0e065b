#include "services/cli/command_text.h"

#include <gmock/gmock.h>

#include "services/cli/manual_page.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CommandTextTest, ChoicesAndValues_AreWhatCli11WasTold) {
  CLI::App app("does things", "penstock");
  std::string text;
  int number = 3;
  bool flag = true;
  app.add_option("--goal", text, "Which")->type_name("NAME")->check(CLI::IsMember({"near", "far"}));
  app.add_option("-o,--known", text, "Any")->type_name("TEXT")->check(KnownValues({"x", "y"}));
  app.add_option("--count", number, "How many")
      ->type_name("N")
      ->check(CLI::Range(1, 9))
      ->capture_default_str();
  app.add_flag("--no-flag{false}", flag, "Not");
  app.parse("--known z");
  EXPECT_EQ(text, "z") << "known values refuse no others";

  const CommandText described = Describe(app);
  ASSERT_EQ(described.options.size(), 5u);
  EXPECT_THAT(described.options[1].choices, ElementsAre("near", "far"));
  EXPECT_THAT(described.options[2].names, ElementsAre("-o", "--known"));
  EXPECT_THAT(described.options[2].choices, ElementsAre("x", "y"));
  EXPECT_EQ(described.options[3].value, "N");
  EXPECT_EQ(described.options[3].description, "How many (default: 3)");
  EXPECT_THAT(described.options[3].choices, IsEmpty());
  EXPECT_THAT(described.options[4].names, ElementsAre("--no-flag"));
  EXPECT_EQ(described.options[4].value, "");
}

TEST(ManualPageTest, TextThatTroffWouldTakeForMore_IsEscaped) {
  CommandText program;
  program.summary = ".PP is no request here\na\\b";
  program.commands = {{.path = "go",
                       .name = "go",
                       .summary = "Go",
                       .group = "Ways",
                       .options = {{.names = {"--to"},
                                    .value = "PLACE",
                                    .choices = {"here", "there"},
                                    .description = "'Where' to-go"}}}};
  const std::string page = ManualPage(program, "1.0");
  EXPECT_THAT(page, HasSubstr("\n\\&.PP is no request here\na\\eb\n"));
  EXPECT_THAT(page, HasSubstr("\n.SH WAYS\n.SS penstock go\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-to\\fR \\fIPLACE\\fR\n\\(aqWhere\\(aq to\\-go\n"));
  EXPECT_THAT(page, HasSubstr("Known: here, there"));
  EXPECT_THAT(page, Not(HasSubstr("\n'")));
}

}  // namespace
}  // namespace penstock

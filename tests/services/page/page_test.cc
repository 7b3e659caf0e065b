// The status page as people see it: in a browser, of a real cluster.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/services/cli/job_directory.h"
#include "tests/services/page/browser.h"

namespace penstock {
namespace {

using ::testing::IsEmpty;
using Json = nlohmann::json;

// The names of a job's figures.
constexpr char kFacts[] = "[...document.querySelectorAll('.facts dt')].map((dt) => dt.innerText)";

class PageTest : public ::testing::Test {
 protected:
  PageTest() : browser_(job_.path("browser")) {}

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(StartCoordinator("127.0.0.1:0", "127.0.0.1:0"));
    for (int worker = 0; worker < 2; ++worker) workers_.push_back(StartWorker(worker));
    browser_.Resize(1400, 1000);
  }
  // A page without errors, whatever it has seen.
  void TearDown() override { EXPECT_THAT(browser_.errors(), IsEmpty()); }

  void StartCoordinator(const std::string& listen, const std::string& http) {
    coordinator_ = std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-coordinator"), "--listen", listen, "--metrics", http, "--state",
        job_.path("state.sqlite"), "--checkpoint-root", job_.path(), "--insecure"});
    http_ = AwaitAddress(*coordinator_, "status page at http://");
    address_ = AwaitAddress(*coordinator_, "listens on ");
  }

  std::unique_ptr<Process> StartWorker(int worker) {
    return std::make_unique<Process>(std::vector<std::string>{
        ProgramPath("penstock-worker"), "--coordinator", address_, "--listen", "127.0.0.1:0",
        "--name", "worker-" + std::to_string(worker), "--data-root", job_.path(),
        "--checkpoint-root", job_.path(), "--threads", "1", "--metrics", "off", "--insecure"});
  }

  std::string Submit(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        ProgramPath("penstock"), "submit", job_.job(),  "--no-wait", "--json",
        "--coordinator",         address_, "--insecure"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json submitted = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    return submitted.is_object() ? submitted.value("job_id", "") : "";
  }
  std::string Url() const { return "http://" + http_ + "/"; }
  std::string Shown() { return browser_.Evaluate("document.body.innerText").dump(2); }

  JobDirectory job_;
  std::string address_;  // of the coordinator's gRPC server
  std::string http_;     // and of its HTTP server
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> workers_;
  Browser browser_;
};

TEST_F(PageTest, RunningJob_ShowsWhatItsStagesDo) {
  job_.EditJob("steps: 6", "steps: 20000");
  job_.EditJob("method: 1f1b", "method: pipedream");
  Submit();
  browser_.Open(Url());
  EXPECT_TRUE(browser_.Await("document.querySelectorAll('#pipeline .stage').length === 2"))
      << Shown();
  // A stage does something, and something else later.
  EXPECT_TRUE(browser_.Await("document.querySelector('#pipeline .now:is(.f, .i, .w)') !== null"))
      << Shown();
  EXPECT_TRUE(browser_.Await("document.querySelectorAll('#timeline-picture .f').length > 0"));
  EXPECT_TRUE(browser_.Await(
      "document.querySelector('#loss-curve .curve')?.getAttribute('d').length > 50"));
  EXPECT_TRUE(browser_.Await("document.querySelectorAll('.bubbles .k-busy').length === 2"))
      << Shown();
  // PipeDream of two stages: the first is one update late, the last is not.
  const std::string staleness =
      "[...document.querySelectorAll('[aria-labelledby=staleness-title] tbody tr')]"
      ".map((row) => row.cells[1].innerText.at(-1)).join()";
  EXPECT_TRUE(browser_.Await(staleness + " === '1,0'")) << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelector('#connection').innerText"), "live");
}

TEST_F(PageTest, EndedJob_ShowsItsResult) {
  const std::string id = Submit();
  browser_.Open(Url() + "#job=" + id);
  EXPECT_TRUE(browser_.Await("document.querySelector('main .state')?.innerText === 'succeeded'"))
      << Shown();
  EXPECT_TRUE(browser_.Await("document.querySelector('#timeline-picture') !== null")) << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelectorAll('#loss-curve circle').length"), 2);
  EXPECT_EQ(browser_.Evaluate(
                "document.querySelectorAll('[aria-labelledby=plan-title] tbody tr').length"),
            2);
}

TEST_F(PageTest, WithoutJobs_SaysHowToStartOne) {
  browser_.Open(Url());
  EXPECT_TRUE(browser_.Await(
      "document.querySelector('#job').innerText.includes('No job has been submitted yet')"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelector('#no-jobs').hidden"), false);
}

TEST_F(PageTest, QueuedJob_SaysWhatItWaitsForAndNoTimes) {
  const std::string id = Submit({"--set", "pipeline.stages=3"});
  browser_.Open(Url() + "#job=" + id);
  EXPECT_TRUE(browser_.Await("document.querySelector('.reason')?.innerText.includes('worker')"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate(kFacts),
            Json({"step", "training loss", "validation loss", "speed", "step time", "bubble"}));
}

TEST_F(PageTest, FailedJob_ShowsWhyAndWhatItsWorkersDidLast) {
  const std::string id = Submit({"--steps", "1000000", "--set", "validation.every_steps=0"});
  browser_.Open(Url() + "#job=" + id);
  ASSERT_TRUE(browser_.Await("document.querySelector('#timeline-picture') !== null")) << Shown();
  workers_[1]->Signal(SIGKILL);
  EXPECT_TRUE(browser_.Await("document.querySelector('main .state')?.innerText === 'failed'"))
      << Shown();
  EXPECT_TRUE(browser_.Await("document.querySelector('.problem')?.innerText.includes('worker-1')"))
      << Shown();
  EXPECT_TRUE(
      browser_.Await("document.querySelector('[aria-labelledby=timeline-title]')?.innerText"
                     ".includes('No answer from worker-1')"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelectorAll('#timeline-picture .row').length"), 2);
}

TEST_F(PageTest, JobThatLostAWorker_SaysInWhichAttemptsItTrains) {
  workers_.push_back(StartWorker(2));
  const std::string id = Submit(
      {"--steps", "1000000", "--set", "recovery.mode=auto", "--set", "recovery.wait_seconds=1"});
  browser_.Open(Url() + "#job=" + id);
  ASSERT_TRUE(browser_.Await("document.querySelector('#loss-curve .curve') !== null")) << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelector('#attempts-title')"), nullptr);
  workers_[1]->Signal(SIGKILL);
  EXPECT_TRUE(browser_.Await(
      "document.querySelectorAll('[aria-labelledby=attempts-title] tbody tr').length === 2"))
      << Shown();
  EXPECT_TRUE(
      browser_.Await("document.querySelector('[aria-labelledby=attempts-title] tbody')"
                     "?.rows[0]?.cells[3].innerText === 'worker-1'"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelectorAll('#loss-curve .attempt').length"), 1);
}

TEST_F(PageTest, JobThatEndedBeforeItsFirstStep_PromisesNothing) {
  job_.EditJob("path: input.txt", "path: none.txt");
  const std::string id = Submit();
  browser_.Open(Url() + "#job=" + id);
  EXPECT_TRUE(browser_.Await("document.body.innerText.includes('ended before a step was done')"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate("/measured yet|done yet|workers yet/.test("
                              "document.querySelector('#job').innerText)"),
            false)
      << Shown();
}

// Whatever each of a worker's stages says of it, it has its time once.
TEST_F(PageTest, SeveralStagesOnAWorker_ShareItsTime) {
  job_.EditJob("method: 1f1b", "method: interleaved-1f1b\n  stages: 4\n  stages_per_worker: 2");
  const std::string id = Submit(
      {"--set", "checkpoint.directory=" + job_.checkpoints(), "--set", "checkpoint.every_steps=1"});
  browser_.Open(Url() + "#job=" + id);
  EXPECT_TRUE(browser_.Await("document.querySelector('main .state')?.innerText === 'succeeded'"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate("document.querySelectorAll('#pipeline .stage').length"), 4);
  const Json widths = browser_.Evaluate(
      "[...document.querySelectorAll('.bubbles .stack')].map((stack) => [...stack.children]"
      ".reduce((sum, part) => sum + Number.parseFloat(part.style.width), 0))");
  ASSERT_EQ(widths.size(), 2u) << Shown();
  for (const Json& width : widths) EXPECT_NEAR(width.get<double>(), 100.0, 0.5);
}

TEST_F(PageTest, TextOfOthers_IsTextWhateverItSays) {
  const std::string hostile = R"(<img src=x onerror=hacked=1><script>hacked=1</script>)";
  // What a user may say: the path of a text that is not there, which the error repeats.
  job_.EditJob("path: input.txt", "path: \"" + hostile + "\"");
  const std::string id = Submit();
  browser_.Open(Url() + "#job=" + id);
  EXPECT_TRUE(browser_.Await("document.querySelector('.problem')?.innerText.includes('onerror')"))
      << Shown();
  // The coordinator lets no such name through; but the page does not rely on that.
  browser_.Evaluate("window.hostile = " + Json(hostile).dump());
  browser_.Evaluate(R"js((() => {
    const real = window.fetch;
    window.fetch = async (path, options) => {
      const answer = await real(path, options);
      const text = (await answer.text()).replace(/"(tiny|worker-0)"/g, JSON.stringify(hostile));
      return new Response(text, {status: answer.status});
    };
  })())js");
  for (const char* where : {"#job-name", "#jobs .name", "#workers b"}) {
    EXPECT_TRUE(browser_.Await("document.querySelector('" + std::string(where) +
                               "')?.textContent === hostile"))
        << where << Shown();
  }
  EXPECT_EQ(browser_.Evaluate("document.querySelectorAll('.columns :is(script, img)').length"), 0);
  EXPECT_EQ(browser_.Evaluate("typeof hacked"), "undefined");
}

TEST_F(PageTest, CoordinatorThatGoesAwayAndReturns_IsNoticed) {
  Submit();
  browser_.Open(Url());
  EXPECT_TRUE(browser_.Await("document.querySelector('main .state')?.innerText === 'succeeded'"))
      << Shown();
  coordinator_->Signal(SIGKILL);
  coordinator_->Wait(std::chrono::seconds(20));
  EXPECT_TRUE(
      browser_.Await("document.querySelector('#connection').innerText.startsWith('no answer from "
                     "the coordinator')"))
      << Shown();
  // What was known is still to be read.
  EXPECT_EQ(browser_.Evaluate("document.querySelector('#job-name').innerText"), "tiny");
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(address_, http_));
  EXPECT_TRUE(browser_.Await("document.querySelector('#connection').innerText === 'live'"))
      << Shown();
}

TEST_F(PageTest, AnyWidthAndScheme_FitsWithoutScrollingSideways) {
  const std::string id = Submit();
  browser_.Open(Url() + "#job=" + id);
  ASSERT_TRUE(browser_.Await("document.querySelector('#timeline-picture') !== null")) << Shown();
  std::string background;
  for (const char* scheme : {"light", "dark"}) {
    for (const int width : {360, 820, 1100, 2560}) {
      browser_.Resize(width, 800, scheme);
      EXPECT_EQ(browser_.Evaluate("document.documentElement.scrollWidth"), width) << scheme;
    }
    const std::string shown = browser_.Evaluate("getComputedStyle(document.body).backgroundColor");
    EXPECT_NE(shown, background) << scheme;
    background = shown;
  }
}

TEST_F(PageTest, JobsThatAreChosen_AreDrawnBesideEachOther) {
  const std::string first = Submit();
  const std::string second = Submit({"--method", "gpipe"});
  browser_.Open(Url());
  ASSERT_TRUE(
      browser_.Await("[...document.querySelectorAll('#jobs .state')].filter("
                     "(state) => state.innerText === 'succeeded').length === 2"))
      << Shown();
  const std::string unchecked = "document.querySelector('#jobs input:not(:checked)')";
  browser_.Evaluate(unchecked + ".click()");
  EXPECT_TRUE(browser_.Await("document.querySelectorAll('svg .compared').length === 4")) << Shown();
  const std::string hash = browser_.Evaluate("location.hash");
  EXPECT_THAT(hash, ::testing::AllOf(::testing::StartsWith("#compare="),
                                     ::testing::HasSubstr(first), ::testing::HasSubstr(second)));
  const std::string shown = browser_.Evaluate("document.querySelector('main').innerText");
  EXPECT_THAT(shown, ::testing::AllOf(::testing::HasSubstr("1f1b"), ::testing::HasSubstr("gpipe")));
  browser_.Evaluate("document.querySelector('#jobs input:checked').click()");
  EXPECT_TRUE(browser_.Await("document.querySelectorAll('svg .compared').length === 0")) << Shown();
  EXPECT_TRUE(browser_.Await("location.hash.startsWith('#job=')"));
}

TEST_F(PageTest, Keyboard_ReachesEveryJob) {
  Submit();
  const std::string second = Submit();
  browser_.Open(Url());
  ASSERT_TRUE(browser_.Await("document.querySelectorAll('#jobs a').length === 2")) << Shown();
  const std::string focused = "document.activeElement.getAttribute('href')";
  std::vector<std::string> reached;
  for (int i = 0; i < 5; ++i) {  // the first job has a box behind its link
    browser_.PressKey("Tab");
    const Json href = browser_.Evaluate(focused);
    if (href.is_string()) reached.push_back(href);
  }
  EXPECT_THAT(reached, ::testing::Contains("#job=" + second));
  // The place is kept while the list changes.
  const Json before = browser_.Evaluate(focused);
  EXPECT_TRUE(
      browser_.Await("[...document.querySelectorAll('#jobs .state')].every("
                     "(state) => state.innerText === 'succeeded')"))
      << Shown();
  EXPECT_EQ(browser_.Evaluate(focused), before);
  browser_.PressKey("Enter");
  EXPECT_EQ(browser_.Evaluate("location.hash"), before);
}

// As it is by default: over TLS, to those who answer the browser's prompt with the token.
TEST(SecurePageTest, TokenOverTls_ShowsThePageAndItsDocuments) {
  const JobDirectory job;
  const ProcessResult made =
      RunProcess({ProgramPath("penstock"), "certs", "init", "-o", job.path("certificates")});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string token = "a-token-that-is-long-enough-for-anybody";
  job.Write("token", token);
  const Process coordinator(std::vector<std::string>{
      ProgramPath("penstock-coordinator"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
      "--metrics-token-file", job.path("token"), "--state", job.path("state.sqlite"),
      "--certificates", job.path("certificates/coordinator")});
  const std::string url = "https://" + AwaitAddress(coordinator, "status page at https://") + "/";
  Browser browser(job.path("browser"));
  browser.TrustAndAnswer(token);
  browser.Open(url);
  EXPECT_TRUE(browser.Await("document.querySelector('#connection')?.innerText === 'live'"));
  EXPECT_TRUE(browser.Await("document.body.innerText.includes('No job has been submitted yet')"));
  EXPECT_THAT(browser.errors(), IsEmpty());
  Browser another(job.path("another"));  // one that has learnt no token yet
  another.TrustAndAnswer("another-token-that-nobody-has-handed-out");
  another.Open(url);
  EXPECT_TRUE(another.Await("document.body.innerText.includes('certificate')")) << "the refusal";
  EXPECT_EQ(another.Evaluate("document.querySelector('#connection')"), nlohmann::json())
      << "the page is not for those without";
}

}  // namespace
}  // namespace penstock

#include "tests/services/page/browser.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kProgram[] = "/usr/bin/chromium-headless-shell";
// Where --remote-debugging-pipe reads and writes.
constexpr int kReadFd = 3;
constexpr int kWriteFd = 4;
constexpr std::chrono::seconds kAnswerTimeout(60);

}  // namespace

Browser::Browser(const std::string& profile) {
  int to[2], from[2];
  EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
  EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
  const std::string data = "--user-data-dir=" + profile;
  pid_ = fork();
  if (pid_ == 0) {
    // Out of the way first: the ends may be where they are to go.
    const int in = fcntl(to[0], F_DUPFD, 10), out = fcntl(from[1], F_DUPFD, 10);
    dup2(in, kReadFd);
    dup2(out, kWriteFd);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nowhere, fd);
    setenv("HOME", profile.c_str(), 1);
    // Chromium's sandbox does not work for root, as which containers run tests; the page is our own.
    execl(kProgram, kProgram, "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
          "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
          "--hide-scrollbars", data.c_str(), nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  to_ = to[1];
  from_ = from[0];
  const Json target = Call("Target.createTarget", {{"url", "about:blank"}});
  session_ =
      Call("Target.attachToTarget", {{"targetId", target.value("targetId", "")}, {"flatten", true}})
          .value("sessionId", "");
  for (const char* domain : {"Page.enable", "Runtime.enable", "Log.enable"}) Call(domain);
}

Browser::~Browser() {
  close(to_);  // ends it
  close(from_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Browser::Resize(int width, int height, const std::string& scheme) {
  Call("Emulation.setDeviceMetricsOverride",
       {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  Call("Emulation.setEmulatedMedia",
       {{"features", {{{"name", "prefers-color-scheme"}, {"value", scheme}}}}});
}

void Browser::TrustAndAnswer(const std::string& token) {
  token_ = token;
  Call("Security.enable");
  Call("Security.setIgnoreCertificateErrors", {{"ignore", true}});
  Call("Fetch.enable", {{"handleAuthRequests", true}});
}

void Browser::Open(const std::string& url) { Call("Page.navigate", {{"url", url}}); }

Json Browser::Evaluate(const std::string& expression) {
  const Json answer =
      Call("Runtime.evaluate",
           {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
  return answer.contains("exceptionDetails") ? Json() : answer["result"].value("value", Json());
}

bool Browser::Await(const std::string& expression, std::chrono::seconds timeout) {
  const auto give_up_at = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < give_up_at) {
    if (Evaluate(expression) == true) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

void Browser::PressKey(const std::string& key) {
  for (const char* type : {"keyDown", "keyUp"}) {
    Json event = {{"type", type}, {"key", key}, {"code", key}};
    event["windowsVirtualKeyCode"] = key == "Tab" ? 9 : 13;
    if (key == "Enter") event["text"] = "\r";
    Call("Input.dispatchKeyEvent", event);
  }
}

std::string Browser::Screenshot() {
  std::string png;
  absl::Base64Unescape(
      Call("Page.captureScreenshot", {{"format", "png"}}).value("data", std::string()), &png);
  return png;
}

Json Browser::Call(const std::string& method, Json parameters) {
  const int id = Send(method, std::move(parameters));
  while (id != 0) {
    const Json answer = ReadMessage();
    if (answer.is_null()) break;
    if (answer.value("id", 0) == id) {
      EXPECT_FALSE(answer.contains("error")) << method << ": " << answer.dump();
      return answer.value("result", Json::object());
    }
    Notice(answer);
  }
  return Json::object();
}

int Browser::Send(const std::string& method, Json parameters) {
  Json message = {{"id", ++last_id_}, {"method", method}};
  message["params"] = parameters.is_null() ? Json::object() : std::move(parameters);
  if (!session_.empty()) message["sessionId"] = session_;
  const std::string text = message.dump() + '\0';
  if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    ADD_FAILURE() << "the browser has ended; is " << kProgram << " installed (packages.txt)?";
    return 0;
  }
  return last_id_;
}

Json Browser::ReadMessage() {
  size_t end = 0;
  while ((end = buffer_.find('\0')) == std::string::npos) {
    pollfd ready = {.fd = from_, .events = POLLIN};
    char piece[16 << 10];
    const bool came = poll(&ready, 1, std::chrono::milliseconds(kAnswerTimeout).count()) == 1;
    const ssize_t got = came ? read(from_, piece, sizeof(piece)) : 0;
    if (got <= 0) {
      ADD_FAILURE() << "no answer from the browser; is " << kProgram
                    << " installed (packages.txt)?";
      return Json();
    }
    buffer_.append(piece, got);
  }
  Json message = Json::parse(buffer_.substr(0, end), nullptr, /*allow_exceptions=*/false);
  buffer_.erase(0, end + 1);
  return message;
}

void Browser::Notice(const Json& event) {
  const std::string method = event.value("method", "");
  const Json parameters = event.value("params", Json::object());
  if (method == "Runtime.exceptionThrown") {
    errors_.push_back(parameters["exceptionDetails"].dump());
  } else if (method == "Runtime.consoleAPICalled" && parameters.value("type", "") == "error") {
    errors_.push_back(parameters.dump());
  } else if (method == "Log.entryAdded") {
    const Json& entry = parameters["entry"];
    const bool is_error = entry.value("level", "") == "error";
    if (is_error && entry.value("source", "") != "network") errors_.push_back(entry.dump());
  } else if (method == "Fetch.requestPaused") {
    Send("Fetch.continueRequest", {{"requestId", parameters["requestId"]}});
  } else if (method == "Fetch.authRequired") {
    const Json& id = parameters["requestId"];
    const bool first = asked_.insert(id.get<std::string>()).second;
    Json answer = {{"response", first ? "ProvideCredentials" : "CancelAuth"}};
    if (first) answer.update({{"username", "any"}, {"password", token_}});
    Send("Fetch.continueWithAuth", {{"requestId", id}, {"authChallengeResponse", answer}});
  }
}

}  // namespace penstock

// Browser: headless Chromium with one page, told what to do through its DevTools pipe.
//
// Thread-compatible. Every wait has a deadline, and fails the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace penstock {

class Browser {
 public:
  // Starts it. `profile`: an empty directory for what it writes.
  explicit Browser(const std::string& profile);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // The page's size in CSS pixels, and its preference: "light" or "dark".
  void Resize(int width, int height, const std::string& scheme = "light");
  // From now on it takes any certificate for good, and answers its prompt for a password with `token` (and any name),
  // as a user would; asked again for the same request, it gives up.
  void TrustAndAnswer(const std::string& token);
  void Open(const std::string& url);
  // What an expression of JavaScript is worth on the page; null if it throws.
  nlohmann::json Evaluate(const std::string& expression);
  // Evaluates again and again until it is true. False after `timeout`.
  bool Await(const std::string& expression,
             std::chrono::seconds timeout = std::chrono::seconds(30));
  void PressKey(const std::string& key);
  // As PNG.
  std::string Screenshot();

  // Exceptions and errors of the page's own; requests that nobody answered are not among them.
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  nlohmann::json Call(const std::string& method, nlohmann::json parameters = {});
  // Without waiting for the answer. Returns its number, or 0 if the browser has ended, which fails the test.
  int Send(const std::string& method, nlohmann::json parameters);
  nlohmann::json ReadMessage();
  void Notice(const nlohmann::json& event);

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  std::string session_;
  std::string token_;            // what prompts are answered with
  std::set<std::string> asked_;  // requests that were prompted for
  std::string buffer_;
  std::vector<std::string> errors_;
};

}  // namespace penstock

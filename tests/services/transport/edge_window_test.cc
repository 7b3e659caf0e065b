// The numbers by which an edge goes on after its stream broke: single rules, and whatever a network may do to streams.
#include "services/transport/edge_window.h"

#include <deque>
#include <vector>

#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using Verdict = ReceiveWindow::Verdict;

// A window whose stream is open, with `filled` messages.
SendWindow OpenWindow(int capacity, int filled) {
  SendWindow window(capacity);
  EXPECT_THAT(window.Open({}), IsOk());
  for (int i = 0; i < filled; ++i) {
    window.Reserve();
    EXPECT_EQ(window.Fill(), i);
  }
  return window;
}

TEST(SendWindow, BeforeAStreamWasOpen_ThereIsNoRoom) {
  SendWindow window(2);
  EXPECT_FALSE(window.HasRoom());
  EXPECT_THAT(window.Open({}), IsOk());
  EXPECT_TRUE(window.HasRoom());
}

TEST(SendWindow, Room_IsWhatIsNotReleased) {
  SendWindow window = OpenWindow(2, 2);
  EXPECT_FALSE(window.HasRoom());
  EXPECT_FALSE(window.MarkSent());
  EXPECT_THAT(window.Hear({.received = 1, .released = 0}), IsOk());
  EXPECT_FALSE(window.HasRoom()) << "it came, and was not taken";
  EXPECT_THAT(window.Hear({.received = 1, .released = 1}), IsOk());
  EXPECT_TRUE(window.HasRoom());
}

TEST(SendWindow, Open_GoesOnFromWhereTheReceiverIs) {
  SendWindow window = OpenWindow(4, 3);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(window.MarkSent());
  EXPECT_EQ(window.Next(), std::nullopt);
  EXPECT_THAT(window.Open({.received = 1, .released = 1}), IsOk());
  EXPECT_EQ(window.Next(), 1);
  EXPECT_TRUE(window.MarkSent()) << "it had been sent";
  EXPECT_TRUE(window.MarkSent());
  window.Reserve();
  window.Fill();
  EXPECT_FALSE(window.MarkSent());
}

TEST(SendWindow, SendAgain_GoesBackToTheMessageThatIsDue) {
  SendWindow window = OpenWindow(4, 3);
  for (int i = 0; i < 3; ++i) window.MarkSent();
  EXPECT_THAT(window.SendAgain({.received = 2, .released = 0}), IsOk());
  EXPECT_EQ(window.Next(), 2);
}

TEST(SendWindow, ProgressThatCannotBe_IsRefusedAndChangesNothing) {
  SendWindow window = OpenWindow(4, 3);
  window.MarkSent();
  window.MarkSent();
  ASSERT_THAT(window.Hear({.received = 1, .released = 1}), IsOk());
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 1 to 2"));
  EXPECT_THAT(window.Hear({.received = 3, .released = 1}), refused) << "not sent yet";
  EXPECT_THAT(window.Hear({.received = 0, .released = 0}), refused) << "less than before";
  EXPECT_THAT(window.Hear({.received = 2, .released = 0}), refused) << "less than before";
  EXPECT_THAT(window.Hear({.received = 1, .released = 2}), refused) << "taken before it came";
  EXPECT_THAT(window.SendAgain({.received = 3, .released = 1}), refused);
  EXPECT_EQ(window.heard(), (EdgeProgress{.received = 1, .released = 1}));
  EXPECT_EQ(window.Next(), 2);
}

// After going back, what is sent again has not come on this stream yet.
TEST(SendWindow, ProgressBeyondWhatThisStreamBrought_IsRefused) {
  SendWindow window = OpenWindow(4, 3);
  for (int i = 0; i < 3; ++i) window.MarkSent();
  EXPECT_THAT(window.Open({.received = 1, .released = 0}), IsOk());
  EXPECT_THAT(window.Hear({.received = 2, .released = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 1 to 1")));
}

TEST(ReceiveWindow, OnlyTheMessageThatIsDue_IsTaken) {
  ReceiveWindow window;
  ASSERT_THAT(window.Open(0), IsOk());
  EXPECT_EQ(window.Judge(0, 1, true), Verdict::kGap);
  EXPECT_EQ(window.Judge(0, 0, true), Verdict::kDue);
  EXPECT_EQ(window.Judge(0, 0, false), Verdict::kDue);
  window.Receive();
  EXPECT_EQ(window.Judge(0, 0, true), Verdict::kDuplicate);
  EXPECT_EQ(window.Judge(0, 1, true), Verdict::kDue);
}

TEST(ReceiveWindow, AfterAskingAgain_OnlyItsFirstPartIsDue) {
  ReceiveWindow window;
  ASSERT_THAT(window.Open(0), IsOk());
  EXPECT_EQ(window.Judge(0, 0, true), Verdict::kDue);
  EXPECT_EQ(window.AskAgain(), 1);
  EXPECT_EQ(window.Judge(0, 0, false), Verdict::kOvertaken);
  EXPECT_EQ(window.Judge(0, 1, true), Verdict::kOvertaken);
  EXPECT_EQ(window.Judge(0, 0, true), Verdict::kDue);
  EXPECT_EQ(window.Judge(0, 0, false), Verdict::kDue);
  EXPECT_EQ(window.AskAgain(), 2);
  EXPECT_EQ(window.Judge(0, 0, true), Verdict::kDue);
  window.Receive();
  EXPECT_EQ(window.AskAgain(), 1) << "of another message";
}

TEST(ReceiveWindow, NewerStream_TakesTheOldersPlace) {
  ReceiveWindow window;
  ASSERT_THAT(window.Open(3), IsOk());
  window.AskAgain();
  ASSERT_THAT(window.Open(5), IsOk());
  EXPECT_EQ(window.Judge(3, 0, true), Verdict::kReplaced);
  EXPECT_EQ(window.Judge(5, 1, true), Verdict::kGap) << "nothing was asked for on this stream";
  EXPECT_EQ(window.Judge(5, 0, true), Verdict::kDue);
  const auto refused = StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("after stream 5"));
  EXPECT_THAT(window.Open(5), refused);
  EXPECT_THAT(window.Open(4), refused);
}

// ------------------------------------------------------------------- any network

// Both windows, and streams between them that lose, damage and hold up what they carry, end at any time, and
// go on bringing what is old when there are newer ones.
class AnyNetwork {
 public:
  AnyNetwork(RandomStream& random, int capacity)
      : random_(random), capacity_(capacity), sender_(capacity) {}

  void Step(bool with_faults) {
    switch (random_.Below(with_faults ? 9 : 6)) {
      case 0:
        return Fill();
      case 1:
        return Write(with_faults);
      case 2:
        return BringForth();
      case 3:
        return BringBack();
      case 4:
        return Take();
      case 5:
        return OpenIfNone();
      case 6:
        return BringHello();
      case 7:
        if (random_.Below(8) == 0) Break();
        return;
      default:
        return;
    }
  }
  bool AllTaken(int64_t messages) const { return static_cast<int64_t>(taken_.size()) >= messages; }
  const std::vector<int64_t>& taken() const { return taken_; }
  int64_t again() const { return again_; }
  int64_t streams() const { return static_cast<int64_t>(streams_.size()); }

 private:
  static constexpr int kParts = 3;

  struct Part {
    int64_t message = 0;
    int part = 0;
    bool is_damaged = false;
  };
  struct Word {
    enum { kWelcome, kProgress, kAgain } kind;
    EdgeProgress progress;
  };
  struct Stream {
    bool has_said_hello = false;  // at the receiver
    std::deque<Part> forth;
    std::deque<Word> back;
  };

  void Fill() {
    if (!sender_.HasRoom()) return;
    sender_.Reserve();
    sender_.Fill();
  }
  void Write(bool with_faults) {
    if (!welcomed_ || !sender_.Next().has_value()) return;
    const bool is_damaged = with_faults && random_.Below(10) == 0;
    streams_.back().forth.push_back({*sender_.Next(), part_, is_damaged});
    if (++part_ < kParts) return;
    part_ = 0;
    again_ += sender_.MarkSent() ? 1 : 0;
  }
  // Any stream may bring something, however old it is.
  void BringForth() {
    if (streams_.empty()) return;
    const int64_t stream = random_.Below(4) == 0
                               ? static_cast<int64_t>(random_.Below(streams_.size()))
                               : streams() - 1;
    Stream& from = streams_[stream];
    if (!from.has_said_hello || from.forth.empty()) return;
    const Part part = from.forth.front();
    from.forth.pop_front();
    switch (receiver_.Judge(stream, part.message, part.part == 0)) {
      case Verdict::kDue:
        ASSERT_EQ(part.part, parts_come_);
        if (part.is_damaged) {
          receiver_.AskAgain();
          parts_come_ = 0;
          from.back.push_back({Word::kAgain, receiver_.progress()});
        } else if (++parts_come_ == kParts) {
          parts_come_ = 0;
          come_.push_back(part.message);
          receiver_.Receive();
          ASSERT_LE(static_cast<int>(come_.size()), capacity_);
          from.back.push_back({Word::kProgress, receiver_.progress()});
        }
        return;
      case Verdict::kOvertaken:
      case Verdict::kReplaced:
        return;
      case Verdict::kDuplicate:
      case Verdict::kGap:
        FAIL() << "a sender that follows the rules sends nothing twice or too early on one stream";
    }
  }
  void BringBack() {
    if (!connected_ || streams_.back().back.empty()) return;
    const Word word = streams_.back().back.front();
    streams_.back().back.pop_front();
    if (word.kind == Word::kProgress) {
      ASSERT_THAT(sender_.Hear(word.progress), IsOk());
      return;
    }
    ASSERT_THAT(word.kind == Word::kWelcome ? sender_.Open(word.progress)
                                            : sender_.SendAgain(word.progress),
                IsOk());
    welcomed_ = true;
    part_ = 0;
  }
  void Take() {
    if (come_.empty()) return;
    taken_.push_back(come_.front());
    come_.pop_front();
    receiver_.Release(1);
    for (size_t i = streams_.size(); i-- > 0;) {
      if (!receiver_.IsNewest(static_cast<int64_t>(i))) continue;
      streams_[i].back.push_back({Word::kProgress, receiver_.progress()});
    }
  }
  void OpenIfNone() {
    if (connected_) return SayHello(streams() - 1);
    ASSERT_EQ(sender_.NextStream(), streams());
    streams_.emplace_back();
    connected_ = true;
  }
  // Of any stream, so that those of older ones come late.
  void BringHello() {
    if (!streams_.empty()) SayHello(static_cast<int64_t>(random_.Below(streams_.size())));
  }
  void SayHello(int64_t stream) {
    if (streams_[stream].has_said_hello) return;
    streams_[stream].has_said_hello = true;
    if (!receiver_.Open(stream).ok()) return;
    parts_come_ = 0;
    streams_[stream].back.push_back({Word::kWelcome, receiver_.progress()});
  }
  // For the sender; what is under way to the receiver may still come, or a part of it.
  void Break() {
    if (!connected_) return;
    connected_ = welcomed_ = false;
    part_ = 0;
    std::deque<Part>& forth = streams_.back().forth;
    while (!forth.empty() && random_.Below(3) != 0) forth.pop_back();
  }

  RandomStream& random_;
  const int capacity_;
  SendWindow sender_;
  ReceiveWindow receiver_;
  std::vector<Stream> streams_;
  bool connected_ = false;  // the sender, over the last of them
  bool welcomed_ = false;
  int part_ = 0;        // that the sender writes next
  int parts_come_ = 0;  // of the message that is due
  std::deque<int64_t> come_;
  std::vector<int64_t> taken_;
  int64_t again_ = 0;
};

TEST(EdgeWindow, WhateverStreamsDo_EachMessageIsTakenOnceAndInOrder) {
  int64_t again = 0;
  int64_t streams = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomStream random(seed, 1);
    AnyNetwork edge(random, 1 + static_cast<int>(random.Below(5)));
    for (int step = 0; step < 2000; ++step) {
      edge.Step(/*with_faults=*/true);
      if (HasFatalFailure()) return;
    }
    // When the network is well again, all arrives.
    const int64_t messages = static_cast<int64_t>(edge.taken().size()) + 20;
    for (int step = 0; step < 20'000 && !edge.AllTaken(messages); ++step) {
      edge.Step(/*with_faults=*/false);
      if (HasFatalFailure()) return;
    }
    ASSERT_TRUE(edge.AllTaken(messages)) << edge.taken().size() << " of " << messages;
    for (size_t i = 0; i < edge.taken().size(); ++i) {
      ASSERT_EQ(edge.taken()[i], static_cast<int64_t>(i));
    }
    again += edge.again();
    streams += edge.streams();
  }
  EXPECT_GT(again, 300) << "something was sent again";
  EXPECT_GT(streams, 600) << "streams broke";
}

}  // namespace
}  // namespace penstock

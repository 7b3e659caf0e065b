#include "services/coordinator/status_page.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "results/timeline_message.h"
#include "services/coordinator/page_files.h"
#include "services/documents/result_json.h"
#include "services/documents/timeline_json.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kJobs = "/api/v1/jobs/";
constexpr absl::string_view kLive = "/live";
// The limit of one answer: more spans than a picture of any width shows.
constexpr size_t kSpansMax = 4000;

HttpContent JsonContent(const Json& json) {
  return {"application/json; charset=utf-8",
          json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace)};
}

std::string TypeOf(absl::string_view file) {
  if (absl::EndsWith(file, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(file, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(file, ".js")) return "text/javascript; charset=utf-8";
  return "image/svg+xml";
}

// Keeps means over equal parts of the curve, each at the step of its last point; the last point stays.
void ThinOut(int points_max, google::protobuf::RepeatedPtrField<v1::LossPoint>& curve) {
  const int count = curve.size();
  if (points_max < 2 || count <= points_max) return;
  google::protobuf::RepeatedPtrField<v1::LossPoint> thinned;
  const v1::LossPoint last = curve[count - 1];
  int begin = 0;
  for (int part = 1; part < points_max; ++part) {
    const int end = static_cast<int>(int64_t{count - 1} * part / (points_max - 1));
    if (end <= begin) continue;
    double sum = 0;
    for (int i = begin; i < end; ++i) sum += curve[i].loss();
    v1::LossPoint& mean = *thinned.Add();
    mean.set_step(curve[end - 1].step());
    mean.set_unix_ms(curve[end - 1].unix_ms());
    mean.set_loss(sum / (end - begin));
    begin = end;
  }
  *thinned.Add() = last;
  curve.Swap(&thinned);
}

absl::StatusOr<HttpContent> JobDocument(ClusterView& cluster, const std::string& job_id,
                                        const HttpRequest& request) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::GetJobResponse job, cluster.Job(job_id));
  if (const auto losses = request.query.find("losses"); losses != request.query.end()) {
    int points_max = 0;
    if (!absl::SimpleAtoi(losses->second, &points_max) || points_max < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("losses=", losses->second, ": expected a number of points from 2 on"));
    }
    ThinOut(points_max, *job.mutable_result()->mutable_losses());
    ThinOut(points_max, *job.mutable_result()->mutable_validations());
  }
  Json json = JobJson(job.summary());
  json["planning"] = PlanningJson(job.planning());
  json["plan"] = PlanJson(job.plan());
  json["result"] = ResultJson(job, {.losses = true});
  return JsonContent(json);
}

absl::StatusOr<HttpContent> LiveDocument(ClusterView& cluster, const std::string& job_id) {
  PENSTOCK_ASSIGN_OR_RETURN(const JobView view, cluster.Look(job_id));
  Json json = {{"job_id", job_id}, {"state", JobStateName(view.record.summary().state())}};
  Json stages = Json::array();
  json["timeline"] = Json();
  json["missing_workers"] = Json::array();
  if (view.live != nullptr) {
    for (const v1::StageReport& stage : view.live->stages) stages.push_back(StageJson(stage));
    PENSTOCK_ASSIGN_OR_RETURN(const Timeline timeline, TimelineOf(view.live->timeline));
    json["timeline"] = TimelineJson(timeline, kSpansMax);
    const auto& missing = view.live->timeline.missing_workers();
    json["missing_workers"] = std::vector<std::string>(missing.begin(), missing.end());
  }
  json["per_stage"] = stages;
  return JsonContent(json);
}

}  // namespace

std::vector<HttpRoute> StatusPageRoutes(ClusterView& cluster) {
  std::vector<HttpRoute> routes;
  for (const EmbeddedFile& file : PageFiles()) {
    const std::string path = file.name == "index.html" ? "/" : absl::StrCat("/", file.name);
    routes.push_back({path, [file](const HttpRequest&) -> absl::StatusOr<HttpContent> {
                        return HttpContent{TypeOf(file.name), std::string(file.contents)};
                      }});
  }
  routes.push_back({"/api/v1/jobs", [&cluster](const HttpRequest&) -> absl::StatusOr<HttpContent> {
                      PENSTOCK_ASSIGN_OR_RETURN(const auto now, cluster.Lists());
                      Json jobs = Json::array();
                      for (const v1::JobSummary& job : now->jobs.jobs()) {
                        jobs.push_back(JobJson(job));
                      }
                      return JsonContent(jobs);
                    }});
  routes.push_back(
      {"/api/v1/workers", [&cluster](const HttpRequest&) -> absl::StatusOr<HttpContent> {
         PENSTOCK_ASSIGN_OR_RETURN(const auto now, cluster.Lists());
         Json workers = Json::array();
         for (const v1::WorkerSummary& worker : now->workers.workers()) {
           workers.push_back(WorkerJson(worker));
         }
         return JsonContent(workers);
       }});
  routes.push_back(
      {std::string(kJobs), [&cluster](const HttpRequest& request) -> absl::StatusOr<HttpContent> {
         absl::string_view job_id = request.path;
         absl::ConsumePrefix(&job_id, kJobs);
         if (absl::ConsumeSuffix(&job_id, kLive)) {
           return LiveDocument(cluster, std::string(job_id));
         }
         return JobDocument(cluster, std::string(job_id), request);
       }});
  return routes;
}

}  // namespace penstock

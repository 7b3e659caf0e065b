// The coordinator's status page: what a browser loads, and the documents it reads from then on.
//
//   /, /page.js, /style.css, /icon.svg   the page (page/)
//   /api/v1/jobs                         as `penstock list --json`
//   /api/v1/workers                      as `penstock workers --json`
//   /api/v1/jobs/ID                      as `penstock status ID --json`; ?losses=N: about N points
//   /api/v1/jobs/ID/live                 what its workers do, or did last (docs/status-page.md)
//
// All of it only reads.
#pragma once

#include <vector>

#include "services/coordinator/cluster_view.h"
#include "services/http/message.h"

namespace penstock {

// REQUIRES: `cluster` outlives the routes.
std::vector<HttpRoute> StatusPageRoutes(ClusterView& cluster);

}  // namespace penstock

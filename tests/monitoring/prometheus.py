"""A real Prometheus (Debian's package, scripts/fetch_prometheus.sh) that scrapes a cluster, and its answers."""
import json
import pathlib
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from cluster import eventually

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RULES = ROOT / "deploy/prometheus/rules/penstock.yml"
SCRAPE_SECONDS = 0.5


def programs():
    """Where prometheus and promtool are. Errors: RuntimeError that says what to do."""
    fetched = subprocess.run([ROOT / "scripts/fetch_prometheus.sh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, timeout=120, check=False)
    if fetched.returncode != 0:
        raise RuntimeError(fetched.stderr)
    return pathlib.Path(fetched.stdout.strip())


def promtool(*arguments, stdin=""):
    return subprocess.run([programs() / "promtool", *arguments], input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)


class Prometheus:
    """Scrapes `targets` ({role of the program: [address, ...]}) with the certificate in `certificates`, as
    deploy/prometheus/prometheus.yml does, and with the rules that are deployed."""

    def __init__(self, folder, targets, certificates):
        self.folder = pathlib.Path(folder)
        self.targets = targets
        self.certificates = certificates
        self.process = None
        self.address = None

    def __enter__(self):
        config = {
            "global": {"scrape_interval": f"{int(SCRAPE_SECONDS * 1000)}ms",
                       "scrape_timeout": f"{int(SCRAPE_SECONDS * 1000)}ms",
                       "evaluation_interval": f"{int(SCRAPE_SECONDS * 1000)}ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": f"penstock-{role}", "honor_labels": True, "scheme": "https",
                                "tls_config": {"ca_file": f"{self.certificates}/ca.crt",
                                               "cert_file": f"{self.certificates}/tls.crt",
                                               "key_file": f"{self.certificates}/tls.key", "server_name": role},
                                "static_configs": [{"targets": addresses}]}
                               for role, addresses in self.targets.items()]}
        path = self.folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is YAML
        log_path = self.folder / "prometheus.log"
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                [programs() / "prometheus", f"--config.file={path}", f"--storage.tsdb.path={self.folder / 'tsdb'}",
                 "--web.listen-address=127.0.0.1:0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self.address = eventually(lambda: re.search(r"Listening on\" address=(127\.0\.0\.1:\d+)",
                                                        log_path.read_text()), "Prometheus listens")[1]
            eventually(self._is_ready, "Prometheus is ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        """The data of an answer of Prometheus' API. Errors: ValueError with its reason."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path} {parameters}: {json.load(error).get('error')}") from error

    def query(self, expression):
        """{labels without the name, as a frozenset: value} of a moment."""
        return {frozenset((name, value) for name, value in series["metric"].items() if name != "__name__"):
                float(series["value"][1]) for series in self.get("query", query=expression)["result"]}

    def by_label(self, expression, label):
        """{value of `label`: value of the series}; series must differ by that label."""
        values = {}
        for labels, value in self.query(expression).items():
            assert dict(labels)[label] not in values, f"{expression}: two series with one {label}"
            values[dict(labels)[label]] = value
        return values

    def has_data(self, expression, start, end):
        """Whether a range query has any value."""
        return bool(self.get("query_range", query=expression, start=start, end=end, step="1s")["result"])

    def firing(self):
        """Names of the alerts that fire."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

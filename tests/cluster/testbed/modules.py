"""Writes the go.mod of the testbed's binary for another version of Kubernetes, which is then committed.

Kubernetes' own go.mod points its staging modules at folders of its repository. Everyone else gets them from the
proxy: v1.37.1 of the whole is v0.37.1 of each.
"""

import json
import re
import subprocess
from pathlib import Path

from . import places
from .compiling import go

MODULE = places.GO_MODULES / "kubernetes"


def write(version: str) -> Path:
    program = str(go())
    asked = [program, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    answer = subprocess.run(asked, check=True, cwd=MODULE, capture_output=True, text=True).stdout
    original = Path(json.loads(answer)["GoMod"]).read_text()
    staging = sorted(set(re.findall(r"(k8s\.io/\S+) => \./staging", original)))
    (etcd,) = set(re.findall(r"go\.etcd\.io/etcd/server/v3 (v\S+)", original))
    (language,) = re.findall(r"^go (\S+)$", original, re.MULTILINE)
    apart = "v0" + version[version.index(".") :]
    written = MODULE / ("go.mod" if version == places.KUBERNETES[0] else f"v{version}.mod")
    replaced = "".join(f"\t{name} => {name} {apart}\n" for name in staging)
    written.write_text(
        f"module cotenant.dev/testbed\n\ngo {language}\n\n"
        f"require (\n\tk8s.io/kubernetes v{version}\n\tgo.etcd.io/etcd/server/v3 {etcd}\n)\n\n"
        f"replace (\n{replaced})\n"
    )
    subprocess.run([program, "mod", "tidy", f"-modfile={written}"], check=True, cwd=MODULE)
    return written

# What Python sees of the staged GPU sys.argv[1], and of the host's device sys.argv[2] if there is one.

import glob
import os
import pathlib
import subprocess
import sys

gpu, host = sys.argv[1], sys.argv[2]
devices = "/sys/bus/pci/devices"

listings = {
    "listdir": os.listdir(devices),
    "scandir": [e.name for e in os.scandir(devices)],
    "listdir of a descriptor": os.listdir(os.open(devices, os.O_RDONLY)),
    "glob": [os.path.basename(p) for p in glob.glob(devices + "/*")],
    "iterdir": [p.name for p in pathlib.Path("/sys/bus/../bus/pci/devices").iterdir()],
    "walk": next(os.walk(devices))[1],
    "fwalk": next(os.fwalk(devices))[1],
}
for name, found in listings.items():
    assert found.count(gpu) == 1, (name, found)
    assert not host or found.count(host) == 1, (name, found)

vendor = f"{devices}/{gpu}/vendor"
assert open(vendor).read() == "0x10de\n"
assert os.stat(vendor).st_size == 7
assert os.path.realpath(f"{devices}/{gpu}").startswith("/sys/devices/pci")
assert pathlib.Path(f"{devices}/{gpu}/driver").resolve() == pathlib.Path("/sys/bus/pci/drivers/nvidia")
assert os.readlink(f"{devices}/{gpu}").startswith("../../../devices/pci")

# NCCL's way to a neighbour: a bus's link, and up from where it leads.
bus = gpu[:5] + "3a"
assert os.path.realpath(f"/sys/class/pci_bus/{bus}/../../{bus}:00.0") == f"/sys/devices/pci{bus}/{bus}:00.0"

for start in "/", "/sys":
    at = os.open(start, os.O_PATH)
    relative = os.path.relpath(vendor, start)
    assert os.read(os.open(relative, os.O_RDONLY, dir_fd=at), 9) == b"0x10de\n"
    assert os.stat(relative, dir_fd=at).st_size == 7
    assert os.access(relative, os.R_OK, dir_fd=at)

fd = os.open(vendor, os.O_RDONLY)
assert os.readlink(f"/proc/self/fd/{fd}") == os.path.realpath(vendor)

os.chdir(f"{devices}/{gpu}")
assert os.getcwd() == os.path.realpath(f"{devices}/{gpu}")
assert open("../../../../bus/pci/devices/" + gpu + "/vendor").read() == "0x10de\n"
os.chdir("/")
out = subprocess.run(["cat", "vendor"], cwd=f"{devices}/{gpu}", capture_output=True, text=True, check=True)
assert out.stdout == "0x10de\n"

for change in (lambda: os.mkdir(devices + "/x"), lambda: os.remove(vendor), lambda: os.rename(vendor, vendor + "x")):
    try:
        change()
        raise AssertionError("the tree was changed")
    except PermissionError:
        pass

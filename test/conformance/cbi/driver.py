"""Runs the real cloudbase-init on Linux, over a make-believe Windows.

Real, from the installed package and not changed: the configuration, the boot logic of InitManager with its memory of
what is done, plugin order and reboot decision, the VMwareGuestInfo metadata service, the user data plugin with the
recognition of formats, every cloud-config plugin, the handling of exit codes, host name and users.

Make-believe, in this file: the file system, the registry, local accounts, network adapters, the start of processes and
the reboot. Nothing is executed: the bytes of a script are kept as they stand in the file that cloudbase-init wrote, and
the exit code comes from the job. What cloudbase-init needs of Windows beyond that fails loudly.

A job is read as JSON from standard input, a report written as JSON to standard output; the Go package cbi beside this
file documents both.
"""

import base64
import ctypes
import importlib
import io
import json
import logging
import ntpath
import os as linux_os
import re
import subprocess
import sys
import tempfile
import types
from unittest import mock

MAX_BOOTS = 6  # in a row; a guest that still wants to reboot then is in a loop

PROGRAM = "C:\\Program Files\\Cloudbase Solutions\\Cloudbase-Init"
RPCTOOL = "C:\\Program Files\\VMware\\VMware Tools\\rpctool.exe"
ENVIRONMENT = {
    "TEMP": "C:\\Users\\cloudbase-init\\AppData\\Local\\Temp",
    "PROGRAMFILES": "C:\\Program Files",
    "SYSTEMDRIVE": "C:",
    "SYSTEMROOT": "C:\\Windows",
    "WINDIR": "C:\\Windows",
}

# What Kubernetes' image-builder puts into a Windows image for vSphere: images/capi/ansible/windows/roles/cloudbase-init/
# templates/cloudbase-init.conf with the values of packer/ova/packer-windows.json and packer/config/windows/common.json.
CONFIGURATION = """[DEFAULT]
username=capi
groups=Administrators
inject_user_password=false
user_password_length=123
first_logon_behaviour=no
rename_admin_user=true
real_time_clock_utc=true
debug=true
default_log_levels=comtypes=INFO,suds=INFO,iso8601=WARN,requests=WARN
mtu_use_dhcp_config=true
ntp_use_dhcp_config=true
local_scripts_path={program}\\LocalScripts\\
metadata_report_provisioning_started=True
metadata_report_provisioning_completed=True
ephemeral_disk_volume_label="Temporary Storage"
netbios_host_name_compatibility=true
metadata_services=cloudbaseinit.metadata.services.vmwareguestinfoservice.VMwareGuestInfoService
plugins={plugins}
""".format(program=PROGRAM, plugins=",".join("cloudbaseinit.plugins." + p for p in (
    "windows.createuser.CreateUserPlugin",
    "common.setuserpassword.SetUserPasswordPlugin",
    "common.mtu.MTUPlugin",
    "common.sethostname.SetHostNamePlugin",
    "common.networkconfig.NetworkConfigPlugin",
    "windows.extendvolumes.ExtendVolumesPlugin",
    "common.ephemeraldisk.EphemeralDiskPlugin",
    "common.sshpublickeys.SetUserSSHPublicKeysPlugin",
    "common.userdata.UserDataPlugin",
    "common.localscripts.LocalScriptsPlugin",
    "windows.createuser.CreateUserPlugin",
    "windows.extendvolumes.ExtendVolumesPlugin")))

# Binary modules that exist on Windows only. cloudbase-init imports them; whatever it would call in them is replaced.
WINDOWS_ONLY = ("winreg pywintypes win32api win32com win32com.client win32net win32netcon win32process win32security "
                "win32service winerror winioctlcon wmi mi comtypes").split()

# Modules whose os, open, tempfile and shutil mean the guest's, not this machine's.
GUEST_SIDE = """osutils.windows utils.encoding metadata.services.vmwareguestinfoservice
plugins.common.userdata plugins.common.execcmd plugins.common.userdatautils plugins.common.localscripts
plugins.common.sshpublickeys plugins.common.ephemeraldisk plugins.common.userdataplugins.shellscript
plugins.common.userdataplugins.parthandler plugins.common.userdataplugins.cloudconfigplugins.write_files
plugins.common.userdataplugins.cloudconfigplugins.runcmd
plugins.common.userdataplugins.cloudconfigplugins.users""".split()


def module(name):
    return importlib.import_module("cloudbaseinit." + name)


def import_windows_side():
    """Makes the Windows side of the package importable here."""
    for name in WINDOWS_ONLY:
        sys.modules.setdefault(name, mock.MagicMock(name=name))
    ctypes.windll = mock.MagicMock(name="windll")
    ctypes.WINFUNCTYPE = ctypes.CFUNCTYPE
    ctypes.cdll.msvcrt = mock.MagicMock(name="msvcrt")
    module("osutils.windows")


class Disk:
    """Drive C: in memory. Names are case-insensitive and keep their case; there are no access rights."""

    FORBIDDEN = re.compile(r'[<>"|?*:\x00-\x1f]')

    def __init__(self, folders):
        self.files = {}    # folded path -> content
        self.names = {}    # folded path -> path as it was created; folders and files
        for folder in folders:
            self.makedirs(folder, exist_ok=True)

    def absolute(self, path):
        """The full name, as Windows completes it for a service whose current folder is System32."""
        path = ntpath.normpath(ntpath.join("C:\\Windows\\System32", str(path)))
        drive, tail = ntpath.splitdrive(path)
        if drive.upper() != "C:":
            raise FileNotFoundError(3, "The system cannot find the path specified", path)
        if self.FORBIDDEN.search(tail):
            raise OSError(22, "The file name, directory name, or volume label syntax is incorrect", path)
        return path

    def fold(self, path):
        return self.absolute(path).lower()

    def exists(self, path):
        try:
            return self.fold(path) in self.names
        except OSError:
            return False

    def isfile(self, path):
        return self.exists(path) and self.fold(path) in self.files

    def isdir(self, path):
        return self.exists(path) and not self.isfile(path)

    def makedirs(self, path, mode=0o777, exist_ok=False):
        path = self.absolute(path)
        if self.isfile(path) or self.exists(path) and not exist_ok:
            raise FileExistsError(17, "The file exists", path)
        while path.lower() not in self.names:
            self.names[path.lower()] = path
            path = ntpath.dirname(path)

    def listdir(self, path):
        if not self.isdir(path):
            raise FileNotFoundError(3, "The system cannot find the path specified", path)
        parent = self.fold(path)
        return sorted(ntpath.basename(name) for key, name in self.names.items()
                      if key != parent and ntpath.dirname(key) == parent)

    def remove(self, path):
        if not self.isfile(path):
            raise FileNotFoundError(2, "The system cannot find the file specified", path)
        del self.files[self.fold(path)], self.names[self.fold(path)]

    def chmod(self, path, mode):
        if not self.exists(path):
            raise FileNotFoundError(2, "The system cannot find the file specified", path)

    def open(self, path, mode="r", encoding="cp1252", **_):
        if "r" in mode:
            if not self.isfile(path):
                raise FileNotFoundError(2, "The system cannot find the file specified", path)
            content = self.files[self.fold(path)]
            return io.BytesIO(content) if "b" in mode else io.StringIO(content.decode(encoding))
        if self.isdir(path) or not self.isdir(ntpath.dirname(self.absolute(path))):
            raise PermissionError(13, "Access is denied", path)
        return Writer(self, self.absolute(path), "b" in mode, "a" in mode, encoding)


class Writer(io.BytesIO):
    """A file that is open for writing; its content reaches the disk when it is closed."""

    def __init__(self, disk, path, binary, append, encoding):
        super().__init__()
        self.disk, self.path, self.binary, self.encoding = disk, path, binary, encoding
        if append:
            super().write(disk.files.get(path.lower(), b""))

    def write(self, data):
        if isinstance(data, str) == self.binary:
            raise TypeError("a text file takes str, a binary file bytes")
        if not self.binary:
            data = data.replace("\n", "\r\n").encode(self.encoding)
        return super().write(data)

    def close(self):
        if not self.closed:
            self.disk.names.setdefault(self.path.lower(), self.path)
            self.disk.files[self.path.lower()] = self.getvalue()
        super().close()


def windows_os(disk):
    """Stands in for the module os. What it lacks raises AttributeError."""
    path = types.SimpleNamespace(
        sep="\\", join=ntpath.join, split=ntpath.split, splitext=ntpath.splitext, splitdrive=ntpath.splitdrive,
        dirname=ntpath.dirname, basename=ntpath.basename, normpath=ntpath.normpath, isabs=ntpath.isabs,
        exists=disk.exists, isfile=disk.isfile, isdir=disk.isdir, abspath=disk.absolute,
        expandvars=lambda p: re.sub(r"%([^%]+)%", lambda m: ENVIRONMENT.get(m[1].upper(), m[0]), p))
    return types.SimpleNamespace(
        name="nt", sep="\\", linesep="\r\n", environ=ENVIRONMENT, path=path, urandom=linux_os.urandom,
        makedirs=disk.makedirs, mkdir=disk.makedirs, remove=disk.remove, unlink=disk.remove, chmod=disk.chmod,
        listdir=disk.listdir)


class Guest:
    """A virtual machine: what outlives its boots, and the report of what happened in them."""

    def __init__(self, job):
        self.guestinfo = job["guestInfo"] or {}
        self.power_cycles = job.get("powerCycles") or []
        self.rules = [dict(rule, calls=0) for rule in job.get("rules") or []]
        self.hostname, self.next_hostname = job["hostname"], None
        self.nics = [dict(mac_address=nic["mac"], friendly_name=nic["name"], interface_index=n + 2, dhcp_enabled=False,
                          dhcp_server=None, unicast_addresses=[]) for n, nic in enumerate(job.get("nics") or [])]
        self.registry = {}
        self.users, self.builtin_admin = {"administrator": "Administrator"}, "administrator"
        self.groups = {"administrators", "users", "remote desktop users"}
        self.disk = Disk(["C:\\Windows\\System32", "C:\\Users", PROGRAM + "\\LocalScripts", ENVIRONMENT["TEMP"],
                          ntpath.dirname(RPCTOOL)])
        with self.disk.open(RPCTOOL, "wb") as f:
            f.write(b"MZ")
        self.boot_number, self.wants_reboot = 0, False
        self.report = {"rebootLoop": False, "executions": [], "renames": [], "reboots": [], "plugins": [], "log": []}

    # What processes would do.

    def execute(self, args, shell):
        """Starts a process: answers for rpctool, otherwise records the call and returns the job's exit code."""
        args = [str(arg) for arg in args]
        if args[0].lower() == RPCTOOL.lower():
            return self.rpctool(args[1])
        if shell:  # as Python starts it on Windows
            args = ["cmd.exe", "/c"] + args
        script = next((arg for arg in reversed(args) if self.disk.isfile(arg)), None)
        content = self.disk.files[self.disk.fold(script)] if script else b""
        command = subprocess.list2cmdline(args)
        exit_code = 0
        for rule in self.rules:
            if re.search(rule["match"], command + "\n" + content.decode("utf-8", "replace")):
                codes = rule["exitCodes"]
                exit_code = codes[min(rule["calls"], len(codes) - 1)]
                rule["calls"] += 1
                break
        self.report["executions"].append({
            "boot": self.boot_number, "commandLine": command, "exitCode": exit_code, "scriptPath": script or "",
            "script": base64.b64encode(content).decode()})
        return b"", b"", exit_code

    def rpctool(self, request):
        verb, _, key = request.partition(" ")
        if verb != "info-get" or key not in self.guestinfo:
            return b"", b"No value found\r\n", 1
        # A C string that rpctool prints with "\n"; its C runtime makes "\r\n" of every line end.
        value = self.guestinfo[key].encode().split(b"\0")[0] + b"\n"
        return value.replace(b"\n", b"\r\n"), b"", 0

    # Boots.

    def run(self):
        self.boot_until_at_rest()
        for guestinfo in self.power_cycles:
            if self.report["rebootLoop"]:
                break
            if guestinfo is not None:
                self.guestinfo = guestinfo
            self.boot_until_at_rest()
        self.report.update(
            boots=self.boot_number, hostname=self.hostname, users=sorted(self.users.values()),
            files={self.disk.names[key]: base64.b64encode(content).decode()
                   for key, content in self.disk.files.items() if key != RPCTOOL.lower()})
        return self.report

    def boot_until_at_rest(self):
        for _ in range(MAX_BOOTS):
            self.boot()
            if not self.wants_reboot:
                return
        self.report["rebootLoop"] = True

    def boot(self):
        """One boot, as far as the cloudbase-init service is concerned."""
        self.boot_number += 1
        self.wants_reboot = False
        if self.next_hostname:
            self.hostname, self.next_hostname = self.next_hostname, None
        root, handler = logging.getLogger(), LogKeeper(self)
        handlers, root.handlers = root.handlers, [handler]
        root.setLevel(logging.DEBUG)
        patches = self.patches()
        try:
            for patch in patches:
                patch.start()
            configure()
            module("init").InitManager().configure_host()
        finally:
            for patch in reversed(patches):
                patch.stop()
            root.handlers = handlers
        if self.wants_reboot:
            self.report["reboots"].append(self.boot_number)

    def patches(self):
        """Puts the make-believe Windows under the package, module by module."""
        patches, osutils, guest_os = [], make_osutils(self), windows_os(self.disk)

        def put(where, name, what, create=False):
            patches.append(mock.patch.object(module(where), name, what, create=create))

        for name in GUEST_SIDE:
            if hasattr(module(name), "os"):
                put(name, "os", guest_os)
            if hasattr(module(name), "tempfile"):
                put(name, "tempfile", types.SimpleNamespace(gettempdir=lambda: ENVIRONMENT["TEMP"]))
            put(name, "open", self.disk.open, create=True)
        put("osutils.factory", "get_os_utils", lambda: osutils)
        put("osutils.windows", "wmi", None)
        put("init", "sys", types.SimpleNamespace(platform="win32"))
        put("utils.hostname", "platform", types.SimpleNamespace(node=lambda: self.hostname))
        put("utils.windows.storage.factory", "get_storage_manager",
            lambda: types.SimpleNamespace(extend_volumes=lambda volumes: None))
        for name in ("utils.retry_decorator", "metadata.services.base"):
            put(name, "time", types.SimpleNamespace(sleep=lambda seconds: None))

        manager = module("init").InitManager
        execute = manager._exec_plugin

        def observed(init, osutils, service, plugin, instance_id, shared_data):
            key = osutils.key(plugin.get_name(), init._get_plugins_section(instance_id))
            skipped = instance_id is not None and self.registry.get(key) == 1
            succeeded, reboot = execute(init, osutils, service, plugin, instance_id, shared_data)
            self.report["plugins"].append({
                "boot": self.boot_number, "name": plugin.get_name(), "skipped": skipped, "succeeded": succeeded,
                "reboot": bool(reboot), "done": self.registry.get(key) == 1})
            return succeeded, reboot
        patches.append(mock.patch.object(manager, "_exec_plugin", observed))
        return patches


def configure():
    """Gives the package the configuration of the image; it belongs to the process, so it is renewed at each boot."""
    from cloudbaseinit import conf
    conf.CONF.clear()
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
        f.write(CONFIGURATION)
        f.flush()
        conf.CONF(["--config-file", f.name, "--noreset_service_password"], project="cloudbaseinit")


def make_osutils(guest):
    """The real WindowsUtils with the calls replaced that reach the system."""
    errors = module("exception")

    class Windows(module("osutils.windows").WindowsUtils):
        def reboot(self):
            guest.wants_reboot = True

        def terminate(self):
            pass

        def wait_for_boot_completion(self):
            pass

        def check_os_version(self, major, minor, build=0):
            return (10, 0, 20348) >= (major, minor, build)

        def is_wow64(self):
            return False

        def check_sysnative_dir_exists(self):
            return False

        def is_nano_server(self):
            return False

        def key(self, name, section):
            return self._get_config_key_name(section) + "\\" + name

        def set_config_value(self, name, value, section=None):
            guest.registry[self.key(name, section)] = value

        def get_config_value(self, name, section=None):
            return guest.registry.get(self.key(name, section))

        def execute_process(self, args, shell=True, decode_output=False):
            return guest.execute(args, shell)

        def set_host_name(self, new_host_name):
            guest.next_hostname = str(new_host_name)
            guest.report["renames"].append({"boot": guest.boot_number, "name": guest.next_hostname})
            return True

        def get_dhcp_hosts_in_use(self):
            return []

        def get_network_adapters(self):
            return [(nic["friendly_name"], nic["mac_address"]) for nic in guest.nics]

        def user_exists(self, username):
            return username.lower() in guest.users

        def enum_users(self):
            return list(guest.users.values())

        def is_builtin_admin(self, username):
            return username.lower() == guest.builtin_admin

        def rename_user(self, username, new_username):
            del guest.users[username.lower()]
            guest.users[new_username.lower()] = new_username
            if self.is_builtin_admin(username):
                guest.builtin_admin = new_username.lower()

        def create_user(self, username, password, password_expires=False):
            guest.users[username.lower()] = username

        def set_user_password(self, username, password, password_expires=False):
            if not self.user_exists(username):
                raise errors.ItemNotFoundException("User not found: %s" % username)

        def set_user_info(self, username, full_name=None, disabled=False, expire_interval=None):
            if not self.user_exists(username):
                raise errors.ItemNotFoundException("User not found: %s" % username)

        def generate_random_password(self, length):
            return "x" * length

        def create_user_logon_session(self, username, password, domain=".", load_profile=True, logon_type=2):
            return "token"

        def close_user_logon_session(self, token):
            pass

        def get_user_home(self, username):
            return "C:\\Users\\" + guest.users[username.lower()] if self.user_exists(username) else None

        def group_exists(self, group):
            return group.lower() in guest.groups

        def create_group(self, group, description=None):
            guest.groups.add(group.lower())

        def add_user_to_local_group(self, username, groupname):
            if not self.group_exists(groupname) or not self.user_exists(username):
                raise errors.ItemNotFoundException("No such user or group: %s, %s" % (username, groupname))

    return Windows()


class LogKeeper(logging.Handler):
    """Keeps what cloudbase-init logs, with the number of the boot."""

    def __init__(self, guest):
        super().__init__()
        self.guest = guest

    def emit(self, record):
        if record.name.startswith("cloudbaseinit"):
            self.guest.report["log"].append({
                "boot": self.guest.boot_number, "level": record.levelname,
                "logger": record.name.removeprefix("cloudbaseinit."), "message": record.getMessage()})


if __name__ == "__main__":
    import_windows_side()
    json.dump(Guest(json.load(sys.stdin)).run(), sys.stdout)

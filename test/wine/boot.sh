# Process 1 of a machine. It runs in namespaces of its own; when it ends, the kernel ends everything that runs in them, and
# the mounts go. It ends when its standard input does, which is a pipe from the process that wanted the machine.
#
# $1 is the machine's folder, $2 its name. Inside, the folder is /mnt, so that no path in it depends on where it is.
set -eu
mount --make-rprivate /
mount --bind "$1" /mnt
mount -t proc proc /proc
# wineserver's socket, and what programs of Wine leave.
mount --bind /mnt/tmp /tmp
# Wine resolves names with the system's resolver.
mount --bind /mnt/hosts /etc/hosts
# Wine's own programs are links to these.
mount --bind /usr /usr
mount -o remount,bind,ro /usr
# The firmware: Wine takes the UUID from here, and the rest of SMBIOS from below /sys/class.
mount --bind /mnt/var /var
mount --bind /sys/class/net /mnt/class/net
mount --rbind /mnt/class /sys/class
# The serial ports of the machine below are not ours to write to.
for port in /dev/ttyS*; do
  [ ! -e "$port" ] || mount --bind /dev/null "$port"
done
hostname "$2"
echo ready
# The kernel reaps the orphans of a process 1 that ignores their end. A shell cannot, nor pass it on.
exec perl -e '$SIG{CHLD} = "IGNORE"; 1 while <STDIN>' >/dev/null

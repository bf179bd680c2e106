#!/bin/sh
# The machine's first process: file systems, modules, then the job; the machine ends with it.
export PATH=/usr/sbin:/usr/bin HOME=/ PYTHONDONTWRITEBYTECODE=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module" || echo "lab: $module could not be loaded"; done </modules/order
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out /out || echo "lab: no /out"
mkdir -p /dev/shm /run/netns
mount -t tmpfs shm /dev/shm
hostname lab
ip link set lo up
: >/out/alive
python3 -S -E /lab/guest.pyc >/out/log 2>&1
echo $? >/out/rc
sync
umount /out
poweroff -f

#!/bin/sh
# Runs on the builder with the image's root folder as $1, before its packages are installed and after ($2).
# Makes the system boot as a machine does, and sparingly: without KVM every driver that is probed costs a second.
set -eu
root=$1

if [ "$2" = before ]; then
  # Only what reaches the root file system; the kernel's own list would be 60 MB to unpack at each boot.
  mkdir -p "$root/etc/initramfs-tools/conf.d"
  printf 'MODULES=list\nCOMPRESS=zstd\nBUSYBOX=n\n' > "$root/etc/initramfs-tools/conf.d/machine"
  printf '%s\n' virtio_pci virtio_blk ext4 crc32c_generic > "$root/etc/initramfs-tools/modules"
  exit 0
fi

# virtio_net before systemd-networkd; button and evdev for a power button that logind hears; IPMI for a BMC in-band.
printf '%s\n' virtio_net button evdev ipmi_si ipmi_devintf > "$root/etc/modules-load.d/machine.conf"
for module in kvm kvm_amd kvm_intel powernow_k8 acpi_cpufreq iTCO_wdt i2c_i801 lpc_ich psmouse pcspkr joydev \
  bochs drm cfg80211 ipmi_ssif acpi_ipmi intel_rapl_common edac_mce_amd; do
  echo "blacklist $module"
done > "$root/etc/modprobe.d/machine.conf"

# At start udev is told of what a server has, instead of every device that the kernel knows.
mkdir -p "$root/etc/systemd/system/systemd-udev-trigger.service.d"
cat > "$root/etc/systemd/system/systemd-udev-trigger.service.d/sparing.conf" <<'UNIT'
[Service]
ExecStart=
ExecStart=-/usr/bin/udevadm trigger --action=add --subsystem-match=net --subsystem-match=block --subsystem-match=tty --subsystem-match=misc --subsystem-match=input --subsystem-match=md
UNIT

# Names that do not depend on which version of the kernel is installed: Debian keeps these links, too.
ln -sf "boot/$(basename "$(ls "$root"/boot/vmlinuz-*)")" "$root/vmlinuz"
ln -sf "boot/$(basename "$(ls "$root"/boot/initrd.img-*)")" "$root/initrd.img"

rm -f "$root/vmlinuz.old" "$root/initrd.img.old"

# GRUB: its core image lies on the disk before the first partition and finds the rest on that partition.
mkdir -p "$root/boot/grub"
chroot "$root" grub-mkimage --format=i386-pc --prefix='(hd0,msdos1)/boot/grub' --output=/boot/grub/core.img \
  biosdisk part_msdos ext2 normal linux minicmd configfile search search_fs_uuid search_label serial echo test all_video
cp "$root/usr/lib/grub/i386-pc/boot.img" "$root/boot/grub/boot.img"
mkdir -p "$root/boot/grub/i386-pc"
cp "$root"/usr/lib/grub/i386-pc/*.mod "$root"/usr/lib/grub/i386-pc/*.lst "$root/boot/grub/i386-pc/"
# systemd's lines on the console are what tells why a boot failed.
arguments='console=ttyS0 net.ifnames=0 quiet systemd.show_status=yes mitigations=off nokaslr audit=0'
cat > "$root/etc/default/grub" <<CONF
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_TERMINAL=serial
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX="$arguments"
CONF
cat > "$root/boot/grub/grub.cfg" <<CONF
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
set timeout=0
menuentry 'Debian GNU/Linux' {
  linux /vmlinuz root=/dev/vda1 rw $arguments
  initrd /initrd.img
}
CONF
# The kernel's arguments name the root file system, and the initramfs checks it. In fstab it would be waited for once more,
# until udev has looked at everything.
echo '# The root file system is named by the arguments of the kernel.' > "$root/etc/fstab"

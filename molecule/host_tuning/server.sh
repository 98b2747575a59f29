#!/bin/sh
# Gives a simulated node what a server has and a container has not: a boot loader, a command line of its own,
# processors with controls, and instances. GRUB's programs are Debian's; simulated are the disk they would look at
# (grub-probe), the kernel (Ubuntu's 6.8, of which there is only a name), /proc/cmdline and the processors' files.
set -eu

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends grub2-common >/dev/null

cat >/usr/sbin/grub-probe <<'PROBE'
#!/bin/sh
# Simulated: one disk with one partition.
case "$*" in
*--target=device*) echo /dev/vda1 ;;
*--target=fs_uuid*) echo 3f0d1c1e-6a53-4c4b-9e7f-000000000001 ;;
*--target=fs*) echo ext2 ;;
*--target=partmap*) echo msdos ;;
esac
PROBE
cp /usr/share/grub/default/grub /etc/default/grub
mkdir -p /boot/grub
touch /boot/vmlinuz-6.8.0-45-generic /boot/initrd.img-6.8.0-45-generic
# As at boot or in a package's script, where nobody's language is in the environment: GRUB writes it into its menu.
env -i PATH="$PATH" update-grub 2>/dev/null

mkdir -p /etc/udev/rules.d

# The role asks systemd what it runs on, and our unit asks for itself.
printf '#!/bin/sh\necho none\nexit 1\n' >/usr/local/bin/systemd-detect-virt
chmod 0755 /usr/local/bin/systemd-detect-virt
mkdir -p /etc/systemd/system/gaudi-host-tuning.service.d
printf '[Unit]\nConditionVirtualization=\n' >/etc/systemd/system/gaudi-host-tuning.service.d/server.conf
rm /etc/os-release
printf 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS (simulated)"\n' >/etc/os-release

mkdir -p /run/server/cpu/cpuidle
for cpu in /run/server/cpu/cpu0 /run/server/cpu/cpu1; do
  mkdir -p "$cpu/cpufreq" "$cpu/topology" "$cpu/power"
  echo powersave >"$cpu/cpufreq/scaling_governor"
  echo performance powersave >"$cpu/cpufreq/scaling_available_governors"
  echo 0 >"$cpu/topology/physical_package_id"
  echo 6 >"$cpu/power/energy_perf_bias"
  number=0
  for name in POLL C1 C1E C6; do
    mkdir -p "$cpu/cpuidle/state$number"
    echo "$name" >"$cpu/cpuidle/state$number/name"
    echo 0 >"$cpu/cpuidle/state$number/disable"
    number=$((number + 1))
  done
done
echo 1 >/run/server/cpu/cpu1/online
echo intel_idle >/run/server/cpu/cpuidle/current_driver
mount --bind /run/server/cpu /sys/devices/system/cpu

# A boot, as far as the role can see one: the command line is GRUB's, the units of boot have run, the boot id is new.
cat >/usr/local/sbin/simulated-boot <<'BOOT'
#!/bin/sh
set -eu
echo "boot: vllm-probe.service is $(systemctl is-active vllm-probe.service)" >>/var/tmp/journal
! test -e /run/server/does-not-come-back || exit 0
awk '$1 == "linux" { sub(/^[ \t]*linux[ \t]+/, "BOOT_IMAGE="); print; exit }' /boot/grub/grub.cfg >/run/server/cmdline
! systemctl is-enabled --quiet gaudi-host-tuning.service || systemctl restart gaudi-host-tuning.service
cat /proc/sys/kernel/random/uuid >/run/server/boot_id
BOOT
chmod 0755 /usr/local/sbin/simulated-boot
awk '$1 == "linux" { sub(/^[ \t]*linux[ \t]+/, "BOOT_IMAGE="); print; exit }' /boot/grub/grub.cfg >/run/server/cmdline
mount --bind /run/server/cmdline /proc/cmdline
echo before >/run/server/boot_id

# An instance that runs, and one that is started later. They serve nothing, but are units of that name.
cat >/etc/systemd/system/vllm-probe.service <<'UNIT'
[Service]
ExecStartPre=/bin/sh -c 'echo "$(date +%%s.%%N) started" >>/var/tmp/journal'
ExecStart=sleep infinity
ExecStop=/bin/sh -c 'echo "$(date +%%s.%%N) stopped" >>/var/tmp/journal'
UNIT
printf '[Service]\nExecStart=sleep infinity\n' >/etc/systemd/system/vllm-late.service
systemctl daemon-reload
systemctl start vllm-probe.service

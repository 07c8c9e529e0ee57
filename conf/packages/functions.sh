
# Parts of both packages' scripts. While files are exchanged nothing of ours runs: a run that loads half of its modules from
# the old version and half from the new one would be a third version. A run that is stopped ends its batch first.
user=usage-publisher
stopped=/run/usage-publisher.stopped
units="usage-publisher.timer usage-publisher.service usage-publisher-daemon.service usage-publisher-page.service"

stop_units() {  # what ran is started again by start_units; a run of the timer is not
  [ -d /run/systemd/system ] || return 0
  : > "$stopped"
  for unit in $units; do
    if [ "$unit" != usage-publisher.service ] && systemctl --quiet is-active "$unit"; then echo "$unit" >> "$stopped"; fi
  done
  systemctl stop $units
}

start_units() {
  [ -d /run/systemd/system ] || return 0
  systemctl daemon-reload
  [ -f "$stopped" ] || return 0
  while read -r unit; do systemctl start "$unit" || true; done < "$stopped"
  rm -f "$stopped"
}

make_account() {
  getent passwd "$user" >/dev/null || useradd --system --user-group --no-create-home \
    --home-dir /var/lib/usage-publisher --shell /usr/sbin/nologin "$user"
}

make_folders() {
  install -d -m 0700 -o "$user" -g "$user" /var/lib/usage-publisher
  install -d -m 2750 -o root -g "$user" /etc/usage-publisher
  chgrp "$user" /etc/usage-publisher/publisher.toml.example
}

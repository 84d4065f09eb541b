# Runs the SQL on standard input (behind a first line that is the password) with psql itself, not Debian's
# wrapper, which reads files that the node's administrator may change. 100: there is no psql.
host=$1 port=$2 user=$3 database=$4 as=$5
export PGSSLMODE=$6 PGCONNECT_TIMEOUT=5 PGAPPNAME=psql LC_ALL=C PGPASSFILE=/dev/null PSQLRC=/dev/null
psql=
for candidate in /usr/lib/postgresql/*/bin/psql; do
  [ -x "$candidate" ] && psql=$candidate
done
[ -n "$psql" ] || exit 100
IFS= read -r PGPASSWORD
if [ -n "$PGPASSWORD" ]; then export PGPASSWORD; else unset PGPASSWORD; fi
options=(-X -w -q -A -t -F $'\x1f' -R $'\x1e' -P null=$'\x1d' -v ON_ERROR_STOP=1
  -h "$host" -p "$port" -U "$user" -d "$database" -f -)
cd /
if [ "$as" = root ]; then exec "$psql" "${options[@]}"; fi
exec runuser -u "$as" -- "$psql" "${options[@]}"

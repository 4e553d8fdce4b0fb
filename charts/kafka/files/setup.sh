# Makes users, their rights and topics those of the values: users.txt, acls.txt and topics.sh of this folder.
. /etc/kafka/scripts/client.sh

# the broker may still be starting: each command is retried until the Job's deadline
tried() {
  until tool "$@" < /dev/null; do
    echo "again in 3 s" >&2
    sleep 3
  done
}

# Rights are lines of USER TYPE PATTERN NAME OPERATION, with the words that AclCommand prints.

# what the users in the file $1 should have
wanted() {
  while read -r user; do
    while read -r type pattern name operations; do
      for operation in $(echo "$operations" | tr , ' '); do
        echo "$user $type $pattern $name $operation"
      done
    done < /etc/kafka/scripts/acls.txt
  done < "$1"
}

# what the users in the file $1 have
granted() {
  tried org.apache.kafka.tools.AclCommand --list > /tmp/acls
  while read -r line; do
    case $line in
    Current*)
      type=${line#*resourceType=}
      type=${type%%,*}
      pattern=${line##*patternType=}
      pattern=${pattern%%)*}
      name=${line#*name=}
      name=${name%, patternType=*}
      ;;
    *principal=User:*)
      user=${line#*principal=User:}
      user=${user%%,*}
      operation=${line#*operation=}
      if grep -qxF -e "$user" "$1"; then
        echo "$user $type $pattern $name ${operation%%,*}"
      fi
      ;;
    esac
  done < /tmp/acls
}

# adds or removes ($1) the rights in the file $2, those of a user on a resource together
change() {
  cut -d ' ' -f 1-4 "$2" | sort -u > /tmp/changed
  while read -r user type pattern name; do
    set -- "$1" "$2"
    while read -r line; do
      case $line in
      # AclCommand prints DESCRIBE_CONFIGS and reads DESCRIBECONFIGS
      "$user $type $pattern $name "*) set -- "$@" --operation "$(echo "${line##* }" | tr -d _)" ;;
      esac
    done < "$2"
    case $type in
    TOPIC) set -- "$@" --topic "$name" ;;
    GROUP) set -- "$@" --group "$name" ;;
    TRANSACTIONAL_ID) set -- "$@" --transactional-id "$name" ;;
    CLUSTER) set -- "$@" --cluster ;;
    esac
    case $pattern in
    LITERAL) set -- "$@" --resource-pattern-type literal ;;
    PREFIXED) set -- "$@" --resource-pattern-type prefixed ;;
    esac
    echo "$1 $user $type $name"
    (
      verb=$1
      shift 2
      tried org.apache.kafka.tools.AclCommand "--$verb" --force --allow-principal "User:$user" "$@"
    )
  done < /tmp/changed
}

# the lines of the file $1 that are not in the file $2; grep fails if there are none
without() {
  grep -vxF -f "$2" "$1" || [ $? -eq 1 ]
}

users=/etc/kafka/scripts/users.txt
if [ -s "$users" ]; then
  while read -r user; do
    printf 'SCRAM-SHA-512=password=%s\n' "$(cat "/etc/kafka/scram/$user")" > /tmp/user.properties
    tried kafka.admin.ConfigCommand --alter --entity-type users --entity-name "$user" --add-config-file /tmp/user.properties
  done < "$users"

  # users that the values do not name any more
  { cat "$users"; echo broker; } > /tmp/named
  tried kafka.admin.ConfigCommand --describe --entity-type users |
    sed -n "s/^SCRAM credential configs for user-principal '\([^']*\)' are .*/\1/p" > /tmp/known
  without /tmp/known /tmp/named > /tmp/removed
  while read -r user; do
    echo "remove the user $user"
    tried kafka.admin.ConfigCommand --alter --entity-type users --entity-name "$user" --delete-config SCRAM-SHA-512
  done < /tmp/removed

  # Rights are added before others are removed, so that no running job is without one that it keeps. Removed users
  # lose theirs, so that their open connections can do nothing more.
  cat "$users" /tmp/removed > /tmp/ours
  wanted "$users" > /tmp/wanted
  granted /tmp/ours > /tmp/granted
  without /tmp/wanted /tmp/granted > /tmp/missing
  without /tmp/granted /tmp/wanted > /tmp/stale
  change add /tmp/missing
  change remove /tmp/stale
fi

. /etc/kafka/scripts/topics.sh
echo done

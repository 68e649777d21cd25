#!/usr/bin/env bash
# Makes a release, and publishes it in an apt repository.
#
#   release.sh build KEY OUT [ARGUMENTS OF tools/package]   writes the release files of the current commit to OUT. They
#       are built twice, the second time in another folder with an empty cache, compared, and signed
#   release.sh publish KEY OUT REPOSITORY SUITE             adds the signed .debs and the signed bills of materials of
#       OUT to a suite, and signs its index
#
# KEY identifies one secret key in gpg's home folder (GNUPGHOME). The index of a suite is replaced by renames. Earlier
# versions remain in the suite, so that devices can be downgraded. The first Raspberry Pis use the component armv6, since
# Debian calls their architecture armhf like that of newer ones.
set -euo pipefail

die() { echo "release: $*" >&2; exit 1; }
need() { for program; do command -v "$program" >/dev/null || die "$program is missing: tools/deps.sh release"; done; }
sign() { gpg --batch --quiet --yes --local-user "$key" "$@"; }

# primary KEY: prints the fingerprint of the only secret key with this name.
primary() {
  local found
  found=$(gpg --batch --with-colons --list-secret-keys -- "$1" 2>/dev/null | awk -F: '$1 == "sec" { own = 1 } own && $1 == "fpr" { print $10; own = 0 }')
  [ "$(wc -w <<<"$found")" = 1 ] || die "gpg has $(wc -w <<<"$found") secret keys with the name $1, want one: give its fingerprint"
  echo "$found"
}

build() {
  local out=$1
  shift
  need git go gpg
  cd "$(dirname "$0")/.."
  [ -z "$(git status --porcelain)" ] || die "there are changes that are in no commit"
  local tag major
  tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null) || die "the present commit has no tag such as v0.2.0"
  major=${tag%%.*}
  case $major,$(go list -m) in
    v0,* | v1,* | *,*/"$major") ;;
    *) die "$tag: the programs would not have that version: from v2 on the module's path in go.mod must end in /$major" ;;
  esac
  local work again
  work=$(mktemp -d) && again=$(mktemp -d)
  trap 'chmod -R u+w "'"$work"'" "'"$again"'" && rm -rf "'"$work"'" "'"$again"'"' EXIT
  git clone --quiet . "$work/fedmesh"
  git clone --quiet . "$again/elsewhere"
  go -C "$work/fedmesh/tools/package" run . -root "$work/fedmesh" -out "$out" "$@"
  GOCACHE=$again/cache go -C "$again/elsewhere/tools/package" run . -root "$again/elsewhere" -out "$again/dist" "$@"
  diff -r "$out" "$again/dist" || die "two builds of the same commit differ"
  sign --armor --detach-sign "$out/SHA256SUMS" # it includes the bills of materials
}

# index PATTERN COMPONENT ARCHITECTURE: writes the list of the suite's packages whose file names match PATTERN.
index() {
  local dir=$new/$2/binary-$3
  mkdir -p "$dir"
  (cd "$repository" && find "pool/$suite" -name "$1" -print0 | sort -z |
    xargs -0 -r -n1 apt-ftparchive packages) >"$dir/Packages"
  gzip -9nk "$dir/Packages"
}

publish() {
  local out=$1 repository=$2 suite=$3 new
  need apt-ftparchive gpg gzip sha256sum
  gpg --batch --quiet --status-fd 1 --verify "$out/SHA256SUMS.asc" "$out/SHA256SUMS" |
    grep -q "^\[GNUPG:\] VALIDSIG .* $key\$" || die "$out is not signed by $key: release.sh build"
  (cd "$out" && sha256sum --quiet --strict --check SHA256SUMS) || die "$out is not what was signed"
  local file to
  mkdir -p "$repository/pool/$suite"
  while read -r _ file; do
    [[ $file == *.deb || $file == *.cdx.json ]] || continue
    to=$repository/pool/$suite/$file
    if [ ! -e "$to" ]; then
      cp "$out/$file" "$to.new"
      mv "$to.new" "$to"
    elif ! cmp --quiet "$out/$file" "$to"; then
      die "$to is another file already: raise the version"
    fi
    [[ $file == *.deb ]] || sign --armor --detach-sign --output "$to.asc" "$to" # the index contains the checksums of the .debs
  done <"$out/SHA256SUMS"
  new=$repository/dists/.$suite.new
  rm -rf "$new"
  index '*_amd64.deb' main amd64
  index '*_arm64.deb' main arm64
  index '*_armhf.deb' main armhf
  index '*_armhf-v6.deb' armv6 armhf
  apt-ftparchive -o APT::FTPArchive::Release::Origin=fedmesh -o APT::FTPArchive::Release::Suite="$suite" \
    -o APT::FTPArchive::Release::Codename="$suite" -o APT::FTPArchive::Release::Architectures='amd64 arm64 armhf' \
    -o APT::FTPArchive::Release::Components='main armv6' release "$new" >"$repository/dists/.Release"
  mv "$repository/dists/.Release" "$new/Release"
  sign --clearsign --output "$new/InRelease" "$new/Release"
  sign --armor --detach-sign --output "$new/Release.gpg" "$new/Release"
  gpg --batch --quiet --yes --output "$repository/fedmesh.gpg" --export "$key"
  chmod -R a+rX "$repository"
  rm -rf "$repository/dists/.$suite.old"
  [ ! -e "$repository/dists/$suite" ] || mv "$repository/dists/$suite" "$repository/dists/.$suite.old"
  mv "$new" "$repository/dists/$suite"
  rm -rf "$repository/dists/.$suite.old"
}

[ $# -ge 3 ] || die "usage: release.sh build KEY OUT [ARGUMENTS], or publish KEY OUT REPOSITORY SUITE"
for argument; do [ -n "$argument" ] || die "an argument is empty: want KEY, OUT, and to publish REPOSITORY and SUITE"; done
need gpg
verb=$1
key=$(primary "$2")
shift 2
case $verb in
  build) build "$(realpath -m "$1")" "${@:2}" ;;
  publish) [ $# -eq 3 ] || die "usage: release.sh publish KEY OUT REPOSITORY SUITE"
    [[ $3 =~ ^[a-z]+$ ]] || die "the suite $3 is no word of small letters"
    publish "$(realpath "$1")" "$(realpath -m "$2")" "$3" ;;
  *) die "there is no $verb, only build and publish" ;;
esac

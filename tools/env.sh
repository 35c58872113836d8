# Sourced at the end of the tools that make an environment for tests, and print its Python or its folder. `works` says
# whether $FOLDER has what the tests need, and `build` makes it. Exits with 77 and a reason where that is not possible.
#
#     tools/NAME_env            build what is missing
#     tools/NAME_env --cached   build nothing: 77 if it is not there yet

skip() {
    echo "no $WHAT here: $1" >&2
    exit 77
}

if ! works >/dev/null 2>&1; then
    [ "${1:-}" != --cached ] || skip "run tools/${0##*/} once"
    rm -rf "$FOLDER"
    build >&2 || skip "it cannot be installed, for the reason above"
    works >/dev/null 2>&1 || skip "what was installed in $FOLDER does not work"
fi
echo "${PRINTED:-$FOLDER/bin/python}"

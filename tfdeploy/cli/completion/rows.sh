#compdef tfdeploy
# Completes command lines of tfdeploy in bash and zsh. `tfdeploy completion` has written it.

# Sets `rows` to the rows of the command $1, such as 'lab up'. A row is a flag or verb (nothing for an
# argument), a tab, `=` and what completes its value (nothing for no value), a tab, and its help.
_tfdeploy_rows() {
    case $1 in
@ROWS@
    *) rows=() ;;
    esac
}

# Reads the words before the cursor. Sets `rows`, `want` (what completes the value of the flag before
# the cursor, after `=`) and `after_dashes`.
_tfdeploy_read_words() {
    local command='' word row
    want='' after_dashes=''
    _tfdeploy_rows ''
    for word in "$@"; do
        if [[ -n $want ]]; then
            want=''
            continue
        fi
        if [[ $word == -- ]]; then
            after_dashes=yes
            return
        fi
        for row in "${rows[@]}"; do
            [[ -n $word && $row == "$word"$'\t'* ]] || continue
            row=${row#*$'\t'}
            want=${row%%$'\t'*}
            if [[ $word != -* ]]; then
                command="$command $word"
                _tfdeploy_rows "${command# }"
            fi
            break
        done
    done
}

# Sets `want` to what completes the value of the flag or argument $1.
_tfdeploy_find_value() {
    local row
    want=''
    for row in "${rows[@]}"; do
        [[ $row == "$1"$'\t'* ]] || continue
        row=${row#*$'\t'}
        want=${row%%$'\t'*}
    done
}

# Sets `file` to the names of the kind $1 that were read in this folder, or the nearest one above it.
# A file of another user is ignored.
_tfdeploy_find_file() {
    local folder base=${XDG_STATE_HOME-}
    [[ $base == /* ]] || base=$HOME/.local/state
    folder=$(pwd -P)
    while :; do
        file=$base/tfdeploy/completion/$1${folder//\//%}
        [[ -f $file && -r $file && -O $file ]] && return
        [[ -n $folder ]] || return 1
        folder=${folder%/*}
    done
}


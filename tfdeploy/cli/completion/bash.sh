# Sets `word` to the unquoted word at the cursor, `words` to those before it, `quote` to its open
# quote, and `kept` to the number of its characters that bash keeps.
_tfdeploy_split_line() {
    local line=${COMP_LINE:0:COMP_POINT} char i
    words=() word='' quote='' kept=0
    for ((i = 0; i < ${#line}; i++)); do
        char=${line:i:1}
        if [[ $quote == "'" && $char != "'" ]]; then
            word+=$char
        elif [[ $char == '\' ]]; then
            ((i++))
            word+=${line:i:1}
        elif [[ $char == "$quote" ]]; then
            quote=''
        elif [[ -n $quote ]]; then
            word+=$char
        elif [[ $char == [\'\"] ]]; then
            quote=$char
        elif [[ $char == [[:space:]] ]]; then
            [[ -z $word ]] || words+=("$word")
            word='' kept=0
        else
            word+=$char
            [[ $COMP_WORDBREAKS != *"$char"* ]] || kept=${#word}
        fi
    done
}

# Adds the candidates, quoted. They begin with the word.
_tfdeploy_offer() {
    local text IFS=/
    # Thousands of names without special characters need no loop.
    if [[ $kept == 0 && -z $quote && "$*" != *[!A-Za-z0-9_./:=@,+-]* ]]; then
        COMPREPLY+=("$@")
        return
    fi
    for text; do
        [[ $text != *[[:cntrl:]]* ]] || continue
        text=${text:kept}
        if [[ $quote == "'" ]]; then
            text=${text//\'/\'\\\'\'}
        elif [[ $quote == '"' ]]; then
            # These characters cannot all be escaped between double quotes.
            [[ $text != *[\"\$\`\\!]* ]] || continue
        elif [[ $text == *[!A-Za-z0-9_./:=@,+-]* ]]; then
            printf -v text %q "$text"
        fi
        COMPREPLY+=("$text")
    done
}

_tfdeploy() {
    local -a words rows names found verbs flags
    local word quote kept want after_dashes file row value prefix='' IFS=$' \t\n'
    COMPREPLY=()
    _tfdeploy_split_line
    _tfdeploy_read_words "${words[@]:1}"
    if [[ -n $after_dashes ]]; then
        compopt -o default
        return
    fi
    if [[ -z $want && $word == --*=* ]]; then
        prefix=${word%%=*}=
        _tfdeploy_find_value "${word%%=*}"
    elif [[ -z $want && $word != -* ]]; then
        _tfdeploy_find_value ''
    fi
    [[ $want != *@list* || $word != *,* ]] || prefix=${word%,*},
    for value in ${want#=}; do
        case $value in
        @files) compopt -o default ;;
        @folders) compopt -o dirnames ;;
        @list) ;;
        @*)
            _tfdeploy_find_file "${value#@}" || continue
            mapfile -t -n 5000 names <"$file"
            for value in "${names[@]}"; do
                [[ $prefix$value == "$word"* && $value == [!-]* ]] && found+=("$prefix$value")
            done
            ;;
        *) [[ $prefix$value == "$word"* ]] && found+=("$prefix$value") ;;
        esac
    done
    _tfdeploy_offer "${found[@]}"
    [[ -z $want ]] || return
    for row in "${rows[@]}"; do
        row=${row%%$'\t'*}
        [[ -z $row || $row != "$word"* ]] && continue
        [[ $row == -* ]] && flags+=("$row") || verbs+=("$row")
    done
    [[ -n $word || ${#verbs[@]} == 0 ]] && verbs+=("${flags[@]}")
    _tfdeploy_offer "${verbs[@]}"
}
complete -F _tfdeploy tfdeploy

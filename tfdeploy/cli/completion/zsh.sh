_tfdeploy() {
    local -a rows names lines expl
    local want after_dashes file row value word=${(Q)PREFIX}
    _tfdeploy_read_words "${(@Q)words[2,CURRENT-1]}"
    if [[ -n $after_dashes ]]; then
        _files
        return
    fi
    if [[ -z $want && $word == --*=* ]]; then
        _tfdeploy_find_value "${word%%=*}"
        compset -P '*='
    elif [[ -z $want && $word != -* ]]; then
        _tfdeploy_find_value ''
    fi
    [[ $want != *@list* ]] || compset -P '*,'
    for value in ${=want#=}; do
        case $value in
        @files) _files ;;
        @folders) _files -/ ;;
        @list) ;;
        @*)
            value=${value#@}
            _tfdeploy_find_file "$value" || continue
            names=("${(@f)$(<$file)}")
            names=("${(@)names[1,5000]:#(-*|*[[:cntrl:]]*|)}")
            _wanted "$value" expl "${value%s}" compadd -a names
            ;;
        *) compadd -- "$value" ;;
        esac
    done
    [[ -z $want ]] || return 0
    for row in "${rows[@]}"; do
        [[ $row == -* && $word != -* ]] || lines+=("${row%%$'\t'*}:${row##*$'\t'}")
    done
    if (( ! $#lines )) && [[ -z $word ]]; then
        for row in "${rows[@]}"; do
            lines+=("${row%%$'\t'*}:${row##*$'\t'}")
        done
    fi
    _describe word lines
}

# In a folder of $fpath, this file is the body of the function.
if [[ ${funcstack[1]-} == _tfdeploy ]]; then
    _tfdeploy "$@"
else
    compdef _tfdeploy tfdeploy
fi

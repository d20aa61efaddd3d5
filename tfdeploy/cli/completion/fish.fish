# Completes command lines of tfdeploy in fish. `tfdeploy completion` has written it.

# Prints the rows of the command $argv[1], such as 'lab up'. A row is a flag or verb (nothing for an
# argument), a tab, `=` and what completes its value (nothing for no value), a tab, and its help.
function __tfdeploy_rows
    switch "$argv[1]"
@ROWS@
    end
end

# Prints what completes the value of the flag or argument $word, after `=`.
function __tfdeploy_value --argument-names word
    set -l pattern '^'(string escape --style=regex -- "$word")'\t([^\t]*)\t.*'
    string replace --filter --regex -- $pattern '$1' $argv[2..-1]
end

# Prints the names of a kind that begin with $start and were read in this folder, or in the nearest
# one above it. A file of another user is ignored.
function __tfdeploy_names --argument-names kind start
    set -l base "$XDG_STATE_HOME"
    string match --quiet '/*' -- $base; or set base $HOME/.local/state
    set -l folder (pwd -P)
    while true
        set -l file $base/tfdeploy/completion/$kind(string replace --all / % -- "$folder")
        if test -f $file -a -r $file -a -O $file
            set -l pattern '^(?!-)'(string escape --style=regex -- "$start")'[^\p{Cc}]*$'
            string match --regex -- $pattern <$file
            return
        end
        test -n "$folder"; or return
        set folder (string replace --regex '/[^/]*$' '' -- $folder)
    end
end

function __tfdeploy_complete
    set -l rows (__tfdeploy_rows '')
    set -l command
    set -l want
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -e words[1]
    for word in $words
        if test -n "$want"
            set want
        else if test "$word" = --
            __fish_complete_path (commandline --current-token --cut-at-cursor)
            return
        else
            set want (__tfdeploy_value "$word" $rows)
            if set -q want[1]; and not string match --quiet -- '-*' $word
                set --append command $word
                set rows (__tfdeploy_rows "$command")
            end
        end
    end
    set -l word (commandline --current-token --cut-at-cursor)
    # An open quote cannot be unquoted.
    set -l start (string unescape -- "$word"; or string replace --all --regex '[\'"]' '' -- "$word")
    set -l prefix ''
    if test -z "$want"
        if string match --quiet -- '--*=*' $start
            set prefix (string replace --regex '=.*' '=' -- $start)
            set want (__tfdeploy_value (string replace --regex '=.*' '' -- $start) $rows)
        else if not string match --quiet -- '-*' $start
            set want (__tfdeploy_value '' $rows)
        end
    end
    if string match --quiet -- '*@list*' $want; and string match --quiet -- '*,*' $start
        set prefix (string replace --regex '[^,]*$' '' -- $start)
    end
    set start (string sub --start (math (string length -- "$prefix") + 1) -- "$start")
    for value in (string split --no-empty ' ' -- (string trim --left --chars== -- $want))
        switch $value
            case @files
                printf '%s\n' $prefix(__fish_complete_path $start)
            case @folders
                printf '%s\n' $prefix(__fish_complete_directories $start)
            case @list
            case '@*'
                printf '%s\n' $prefix(__tfdeploy_names (string sub --start 2 -- $value) "$start")
            case '*'
                echo $prefix$value
        end
    end
    test -z "$want"; or return
    set -l shown (string match --regex -- '^[^-\t].*' $rows)
    if string match --quiet -- '-*' $start; or test -z "$start" -a -z "$shown"
        set shown (string match --regex -- '^-.*' $rows)
    end
    string replace --regex -- '\t[^\t]*\t' \t $shown
end

complete --command tfdeploy --erase
complete --command tfdeploy --no-files --arguments '(__tfdeploy_complete)'

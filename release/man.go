package main

import (
	"fmt"
	"regexp"
	"strings"
)

// manual makes the pages of a program from its help: one for the program and one for each of its commands. help runs the program.
func manual(program string, help func(args ...string) (string, error)) (map[string]string, error) {
	pages := map[string]string{}
	var walk func(words []string) error
	walk = func(words []string) error {
		text, err := help(append(words, "--help")...)
		if err != nil {
			return err
		}
		title := strings.Join(append([]string{program}, words...), "-")
		if _, known := pages[title]; known {
			return nil
		}
		usage, rest, ok := strings.Cut(strings.TrimPrefix(text, "Usage: "), "\n\n")
		if !ok {
			return fmt.Errorf("the help of %s has no description:\n%s", strings.Join(append([]string{program}, words...), " "), text)
		}
		summary := strings.Join(strings.Fields(first(rest)), " ")
		pages[title] = page(title, summary, usage+"\n\n"+rest)
		for _, command := range commandsIn(text) {
			if err := walk(strings.Fields(command)); err != nil {
				return err
			}
		}
		return nil
	}
	return pages, walk(nil)
}

// first is the first paragraph of a text.
func first(text string) string {
	paragraph, _, _ := strings.Cut(text, "\n\n")
	return paragraph
}

// commandsIn are the commands that a help lists.
func commandsIn(help string) (list []string) {
	_, after, found := strings.Cut(help, "\nCommands:\n")
	if !found {
		return nil
	}
	for line := range strings.Lines(first(after)) {
		if m := regexp.MustCompile(`^  ([a-z][a-z-]*(?: [a-z][a-z-]*)*)(?:  |$)`).FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			list = append(list, m[1])
		}
	}
	return list
}

var heading = regexp.MustCompile(`^(Arguments|Flags|Commands):$`)

// page is a manual page in roff: the usage is the first paragraph of the text. What the help sets by spaces stays as it is.
func page(title, summary, text string) string {
	var out strings.Builder
	fmt.Fprintf(&out, ".TH %s 1 \"\" nvmlfab\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", strings.ToUpper(escape(title)), escape(title), escape(strings.TrimSuffix(summary, ".")))
	paragraphs := strings.Split(strings.TrimSpace(text), "\n\n")
	fmt.Fprintf(&out, ".nf\n%s\n.fi\n.SH DESCRIPTION\n", lines(paragraphs[0]))
	for _, paragraph := range paragraphs[1:] {
		begin, rest, _ := strings.Cut(paragraph, "\n")
		if heading.MatchString(begin) {
			fmt.Fprintf(&out, ".SH %s\n", strings.ToUpper(strings.TrimSuffix(begin, ":")))
			paragraph = rest
		}
		if paragraph == "" {
			continue
		}
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintf(&out, ".PP\n.nf\n%s\n.fi\n", lines(paragraph))
		} else {
			fmt.Fprintf(&out, ".PP\n%s\n", lines(paragraph))
		}
	}
	return out.String()
}

// lines are a text's lines, escaped.
func lines(text string) string {
	var list []string
	for line := range strings.SplitSeq(text, "\n") {
		list = append(list, escape(line))
	}
	return strings.Join(list, "\n")
}

// escape writes a line so that roff prints it as it is.
func escape(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "…", "...").Replace(line)
	if strings.HasPrefix(line, ".") {
		return `\&` + line
	}
	return line
}

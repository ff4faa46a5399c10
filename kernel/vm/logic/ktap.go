package logic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Suite is the result of a suite of KUnit.
type Suite struct {
	Name  string
	OK    bool
	Cases []Case
}

// Case is the result of one case of a suite.
type Case struct {
	Name string
	OK   bool
	Log  []string // what the case printed
}

var (
	planLine    = regexp.MustCompile(`^( *)1\.\.(\d+)$`)
	subtestLine = regexp.MustCompile(`^    # Subtest: (\S+)$`)
	resultLine  = regexp.MustCompile(`^( *)(not )?ok \d+ (?:- )?(\S+)( # SKIP.*)?$`)
)

// Parse reads KUnit's results in KTAP format from the output of a kernel, or of a program with the same output. Other
// lines count as output of the running case. It returns an error if announced results are missing, if any case was
// skipped, or if a suite's result contradicts those of its cases.
func Parse(r io.Reader) ([]Suite, error) {
	var suites []Suite
	var suite Suite
	var log []string
	planned, cases := -1, -1
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if m := subtestLine.FindStringSubmatch(line); m != nil {
			suite, cases, log = Suite{Name: m[1]}, -1, nil
		} else if m := planLine.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			if m[1] == "" {
				planned = n
			} else {
				cases = n
			}
		} else if m := resultLine.FindStringSubmatch(line); m != nil {
			ok, name := m[2] == "", m[3]
			switch {
			case m[4] != "":
				return suites, fmt.Errorf("%s was skipped", name)
			case m[1] != "":
				suite.Cases = append(suite.Cases, Case{name, ok, log})
			case name != suite.Name || len(suite.Cases) != cases:
				return suites, fmt.Errorf("the results of suite %s are there, but %d of %d of %s", name, len(suite.Cases), cases, suite.Name)
			default:
				suite.OK = ok
				if suite.failed() == ok {
					return suites, fmt.Errorf("suite %s and its cases contradict each other", name)
				}
				suites, suite = append(suites, suite), Suite{}
			}
			log = nil
		} else {
			log = append(log, line)
		}
	}
	if err := lines.Err(); err != nil {
		return suites, err
	}
	if planned < 0 {
		return suites, errors.New("there are no results")
	}
	if len(suites) != planned || suite.Name != "" {
		return suites, fmt.Errorf("%d of %d suites came to an end; the last words were %q", len(suites), planned, strings.Join(log[max(0, len(log)-5):], "\n"))
	}
	return suites, nil
}

func (s Suite) failed() bool {
	for _, c := range s.Cases {
		if !c.OK {
			return true
		}
	}
	return false
}

// Compare returns an error if a run lacks cases of another run of the same suites.
func Compare(run, whole []Suite) error {
	have := map[string]bool{}
	for _, s := range run {
		for _, c := range s.Cases {
			have[s.Name+" "+c.Name] = true
		}
	}
	var missing []error
	for _, s := range whole {
		for _, c := range s.Cases {
			if name := s.Name + " " + c.Name; !have[name] {
				missing = append(missing, fmt.Errorf("%s did not run", name))
			}
		}
	}
	return errors.Join(missing...)
}

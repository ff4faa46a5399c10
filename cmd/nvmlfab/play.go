package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/nvmlfab/nvmlfab/engine/state"
)

type playCmd struct {
	nodeFlags
	gpuFlag
	List     bool    `help:"List the scenarios that nvmlfab has, and play none."`
	Show     bool    `help:"Print the scenario's file, to start one's own from, and do not play it."`
	Check    bool    `help:"Find out whether the scenario can be played on the node, and do not play it."`
	Speed    *string `placeholder:"FACTOR" help:"Play it that much faster, such as 10, or slower, such as 0.5."`
	ID       string  `name:"id" placeholder:"ID" help:"The name by which nvmlfab heal --play can end it; one is made up if left out."`
	Scenario string  `arg:"" optional:"" help:"A scenario's name, or a file, which has a / in it or ends in .yaml or .yml."`
}

func (playCmd) Help() string {
	return `A scenario is a timed list of what happens to a node: values, faults, events and processes. Each step is printed when it is
done. At the end, and when nvmlfab play is interrupted, all that it has done is taken back; if it is killed, that happens by
itself at the time when the scenario would have ended. --gpu stands in for the GPU that the scenario names for all of its steps.
Examples:

    nvmlfab play --list
    nvmlfab play thermal-runaway
    nvmlfab play --gpu 3 --speed 10 falling-gpu
    nvmlfab play --show training-epoch > mine.yaml
    nvmlfab play --check mine.yaml

` + whichNode
}

var scenarioID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (c playCmd) Run() error {
	switch {
	case c.List && (c.Scenario != "" || c.Show || c.Check || c.plays()):
		return errors.New("--list lists all scenarios: leave out everything else")
	case c.Show && c.plays():
		return errors.New("--show prints the file as it is: leave out the flags by which it would be played")
	case c.Check && (c.Speed != nil || c.ID != ""):
		return errors.New("--check plays nothing: leave out --speed and --id")
	case c.List:
		return listScenarios()
	case c.Scenario == "":
		return errors.New("say which scenario: nvmlfab play --list lists those that there are")
	case c.Show && c.Check:
		return errors.New("use either --show or --check")
	case c.ID != "" && !scenarioID.MatchString(c.ID):
		return fmt.Errorf("--id: want letters, digits, dots, dashes and underscores, not %.80q", c.ID)
	}
	p := &play{id: c.ID, gpus: c.GPU, speed: 1}
	if c.Speed != nil {
		v, err := strconv.ParseFloat(*c.Speed, 64)
		if err != nil || math.IsNaN(v) || v < 0.001 || v > 1e6 {
			return fmt.Errorf("--speed: want a number from 0.001 to 1000000, not %.40q", *c.Speed)
		}
		p.speed = v
	}
	var text []byte
	var err error
	if p.scenario, text, err = loadScenario(c.Scenario); err != nil {
		return err
	}
	if c.Show {
		_, err := os.Stdout.Write(text)
		return err
	}
	if len(p.gpus) > 0 && !p.leavesGPU() {
		return errors.New("--gpu stands in for the scenario's GPU, and each of its steps names one of its own")
	}
	if p.node, err = c.open(!c.Check); err != nil {
		return err
	}
	if _, err := p.node.gpus(p.gpus); err != nil {
		return fmt.Errorf("--gpu: %w", err)
	}
	if p.id == "" {
		name := "scenario"
		if scenarioID.MatchString(p.name) && len(p.name) < 50 {
			name = p.name
		}
		p.id = fmt.Sprintf("%s-%04x", name, rand.Uint32N(1<<16))
	}
	if err := p.rehearse(); err != nil {
		return err
	}
	if c.Check {
		_, err := fmt.Printf("%s: ok, %d steps in %s\n", p.file, len(p.Steps), time.Duration(p.Duration))
		return err
	}
	return p.run()
}

// plays says whether there are flags that only matter to who plays the scenario.
func (c playCmd) plays() bool {
	return c.Root != nil || c.nodeFlags.Run != nil || len(c.GPU) > 0 || c.Speed != nil || c.ID != ""
}

// leavesGPU says whether a step does not name its own GPU.
func (s *scenario) leavesGPU() bool {
	for i := range s.Steps {
		if s.Steps[i].GPU == "" {
			return true
		}
	}
	return false
}

func listScenarios() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tLASTS\tWHAT HAPPENS")
	for _, name := range scenarioNames() {
		s, _, err := loadScenario(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", name, time.Duration(s.Duration), s.Description)
	}
	return w.Flush()
}

// run plays the scenario.
func (p *play) run() (err error) {
	interrupted := make(chan os.Signal, 2)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := p.begin(); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		if errors.Is(err, errEnded) {
			err = fmt.Errorf("%w at %s", err, p.clock(began))
			return // nothing is left, and another scenario may have the id by now
		}
		if e := p.undo(); e != nil {
			err = errors.Join(err, fmt.Errorf("what %s has done ends by itself at %s, for it cannot be taken back now: %w",
				p.id, time.UnixMilli(p.end()).Format("15:04:05"), e))
		}
	}()
	if _, err := fmt.Printf("playing %s; nvmlfab heal --play %s ends it\n", p.id, p.id); err != nil {
		return err
	}
	wait := func(m moment) error {
		timer := time.NewTimer(time.Until(began.Add(time.Duration(float64(m) / p.speed))))
		defer timer.Stop()
		tick := time.NewTicker(state.Tick)
		defer tick.Stop()
		for {
			select {
			case s := <-interrupted:
				return exitError{fmt.Errorf("interrupted at %s: all is taken back", p.clock(began)), 128 + int(s.(syscall.Signal))}
			case <-tick.C:
				if p.over() {
					return errEnded
				}
			case <-timer.C:
				return nil
			}
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if err := wait(s.At); err != nil {
			return err
		}
		if err := p.node.change(p.does(s)); err != nil {
			return err
		}
		if _, err := fmt.Printf("%s / %s  %s\n", stamp(s.At), stamp(moment(p.Duration)), p.what(p.node, s, p.gpus)); err != nil {
			return err
		}
	}
	end := moment(p.Duration)
	if err := wait(end); err != nil {
		return err
	}
	_, err = fmt.Printf("%s / %s  the end: all is as before\n", stamp(end), stamp(end))
	return err
}

// clock is how far the scenario has come.
func (p *play) clock(began time.Time) string {
	return stamp(moment(float64(time.Since(began)) * p.speed))
}

// stamp is a moment as minutes and seconds.
func stamp(m moment) string {
	seconds := int64(time.Duration(m) / time.Second)
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}
